"""Results of long benchmarks, kept in a file as they come: a run that was stopped goes on where it was."""

import json


def kept(path, key, compute):
    """``compute()``, a list of numbers; or, where ``path`` holds one for ``key`` already, that. No path, no file."""
    if path is None:
        return compute()
    known = json.loads(path.read_text()) if path.exists() else {}
    if key not in known:
        known[key] = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known))
    return known[key]


def add_option(parser):
    parser.add_argument("--keep", metavar="FOLDER", help="keep results there, and go on from those that are there")

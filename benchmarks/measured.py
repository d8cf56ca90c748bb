"""Tables and blocks of text that benchmarks print, kept in one file and shown on the pages.

    python -m benchmarks.measured multi_class --data FOLDER    # runs that benchmark, keeps its tables, renews the pages
    python -m benchmarks.measured                              # renews the pages from the file

``docs/measured.json`` has for each command the tables that it printed last. A page shows one between two comments, the
first of which names the command and, of several tables, which one::

    <!-- measured: python -m benchmarks.competing, table 2 -->

    | ... |

    <!-- end -->

Nobody edits what is between them: a test compares every such block with the file, and finds tables without comments.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "measured.json"
BLOCK = re.compile(
    r"<!-- measured: (?P<command>[^,>]+?)(?:, table (?P<number>\d+))? -->\n\n(?P<table>.*?)\n\n<!-- end -->", re.S
)


def tables_of(text):
    """Markdown tables, and fenced blocks of text, in what was printed; each a list of lines."""
    found = re.findall(r"(?:^\|[^\n]*\n?)+|^```text\n.*?^```$", text, re.M | re.S)
    return [table.rstrip("\n").split("\n") for table in found]


def pages():
    return sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


def kept():
    return json.loads(FILE.read_text(encoding="utf-8"))


def wanted(block, tables):
    """The text that a block should have."""
    return "\n".join(tables[block["command"]][int(block["number"] or 1) - 1])


def renewed(block, tables):
    """The block with the table that was kept, or as it is if its benchmark has not been run."""
    if block["command"] not in tables:
        return block[0]
    start, end = (at - block.start() for at in block.span("table"))
    return block[0][:start] + wanted(block, tables) + block[0][end:]


def renew_pages():
    tables = kept()
    for path in pages():
        text = path.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda block: renewed(block, tables), text)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"renewed {path.relative_to(DOCS.parent)}")


def run(arguments):
    """Run a benchmark, show what it prints, and keep its tables under its command (without names of files)."""
    printed = []
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    if process.returncode or not (tables := tables_of("".join(printed))):
        sys.exit("It failed, or printed no table: nothing is kept.")
    command = " ".join(["python -m benchmarks." + arguments[0], *arguments[1:]])
    command = re.sub(r" --(data|colon|records) \S+", "", command)
    held = {**kept(), command: tables}
    FILE.write_text(json.dumps(dict(sorted(held.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        run(sys.argv[1:])
    renew_pages()

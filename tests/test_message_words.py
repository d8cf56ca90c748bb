"""Every error and warning names an argument or a variable of the caller, and says what was wrong with its value.

The messages are read off the source, so that those no test raises are read too. A message names what the caller wrote
if it contains

- the name of a public parameter; those that are English words too, such as ``rows``, count where they begin the message
  or stand before ``=``;
- at its beginning, the function that was called: ``calibrated() needs ...``;
- a placeholder for the name of the caller's variable, column, file or option.

A call that would work (``pm.sample(...)``) is advice, and not enough. Messages that say what a value *must* be also
contain the value that was given. Exceptions that the package catches itself (``Unreadable``, private ones) are not
read.
"""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pymc_pacauc as pac

SOURCE = Path(pac.__file__).parent
RAISED = re.compile(r"(?!Unreadable)[A-Z]\w*(Error|Warning|Interrupt)$|refuse$|warn$")
INTERNAL = re.compile(r"\b(sites?|deals?|dealt|sweeps?|cavit\w+|tilted|natural parameters?|pilots?|blocks?)\b", re.I)
MEANT = re.compile(r"\bmax_sweeps\b")  # the caller's own word
NAMES = re.compile(r"\bname|names|path\b|variable|potential|unknown|missing|option|discrete|labels|\bwhere\b|\bwhat\b")
ENGLISH = set(
    re.findall(
        r"\w+",
        "approx auc bound calls chosen cost data draws each event features fit groups index kernel kind load mean "
        "method model move n over pairs path points prior problem range rank rows settings share start terms time top "
        "values",
    )
)
ABOUT_NOTHING_GIVEN = {
    "numerics.py",  # a folder that cannot be written to
    "cluster/rounds.py",  # workers that died
    "datasets/build.py",  # run by maintainers
    "model/op.py",  # shapes within PyTensor's rewrites; the potential checks them first
    "comparison/surrogate.py",  # the same
}
PACKAGE_MISSING = "pip install"  # what is wrong is the installation, not an argument
OF_THE_MODEL = "refuse"  # "The model is not linear-Gaussian: " comes first
PRIVATE = ("count must", "shrinkage must")  # arguments of functions that users do not call
PRESCRIBED = (  # by scikit-learn's checks of estimators
    "Only one class is present in y_true.",
    "Found input variables with inconsistent numbers of samples",
)


@cache
def messages():
    """Place, text, expressions inserted and exception (or function that makes it), of every message."""
    files = sorted(SOURCE.rglob("*.py"))
    return [each for path in files for each in within(ast.parse(path.read_text()), path.relative_to(SOURCE).as_posix())]


def within(node, path):
    call = node.exc if isinstance(node, ast.Raise) else node
    if isinstance(call, ast.Call) and call.args:
        function = ast.unparse(call.func).rpartition(".")[2]
        if RAISED.match(function) and (isinstance(node, ast.Raise) or function == "warn"):
            text, inserted = written(call.args[0])
            if text:
                yield f"{path}:{node.lineno}", text, inserted, function
    for each in ast.iter_child_nodes(node):
        yield from within(each, path)


def written(node):
    """Text and inserted expressions of a string, an f-string or a sum of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, ""
    if isinstance(node, ast.JoinedStr):
        parts = [
            ("", ast.unparse(v.value)) if isinstance(v, ast.FormattedValue) else (v.value, "") for v in node.values
        ]
        return "".join(text or "{}" for text, _ in parts), " ".join(inserted for _, inserted in parts)
    if isinstance(node, ast.BinOp):
        (left, first), (right, second) = written(node.left), written(node.right)
        return left + right, f"{first} {second}"
    return "", ""


@cache
def of_the_caller():
    """Names of public parameters; public names and those of public methods."""
    parameters, functions = set(), set(pac.__all__)
    for value in [getattr(pac, name) for name in pac.__all__]:
        for each in [getattr(value, name) for name in value.__all__] if inspect.ismodule(value) else [value]:
            methods = inspect.getmembers(each, inspect.isfunction) if inspect.isclass(each) else []
            functions |= {name for name, _ in methods}
            for function in (each, *(method for _, method in methods)):
                if callable(function) and not (inspect.isclass(function) and issubclass(function, Exception)):
                    parameters |= set(inspect.signature(function).parameters)
    return parameters - {"self"}, functions


def names_something(text, inserted):
    parameters, functions = of_the_caller()
    return bool(
        (parameters - ENGLISH) & set(re.findall(r"\w+", text))
        or parameters & set(re.findall(r"^\w+|\w+(?==)", text))
        or functions & set(re.findall(r"^(\w+)(?:\(\))? ", text))
        or NAMES.search(inserted)
    )


def judged():
    """Place, text and expressions inserted of the messages that are about what the caller gave."""
    for where, text, inserted, kind in messages():
        exempt = text.startswith(PRESCRIBED + PRIVATE) or PACKAGE_MISSING in text or kind == OF_THE_MODEL
        if not exempt and where.partition(":")[0] not in ABOUT_NOTHING_GIVEN:
            yield where, text, inserted


def test_every_message_names_what_the_caller_wrote():
    bad = [f"{where} {text}" for where, text, inserted in judged() if not names_something(text, inserted)]
    assert not bad, f"{len(bad)} messages name nothing that the caller wrote:\n" + "\n".join(bad)


def test_what_must_be_comes_with_what_is():
    bad = [
        f"{where} {text}"
        for where, text, inserted in judged()
        if re.search(r"\bmust\b", text) and not (inserted.strip() or "got" in text)
    ]
    assert not bad, f"{len(bad)} messages do not say what was given:\n" + "\n".join(bad)


def test_no_message_speaks_of_what_is_inside():
    bad = [f"{where} {text}" for where, text, *_ in messages() if INTERNAL.search(text) and not MEANT.search(text)]
    assert not bad, f"{len(bad)} messages in the words of the engines:\n" + "\n".join(bad)


def test_the_reader_tells_good_messages_from_bad_ones():
    assert len(messages()) > 300
    assert names_something("gamma must be > 0", "")
    assert names_something("rows must be a matrix", "")
    assert names_something("calibrated() needs two rows", "")
    assert names_something("{} must be 1", "name")
    assert not names_something("The rows are too few", "")
    assert not names_something("Use pm.sample() instead", "")
    assert not names_something("Something went wrong: {}", "error")

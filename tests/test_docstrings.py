"""Docstrings of all public names, by numpydoc's validation: GL, SS, PR, RT, YD, SA01 and EX01.

Exceptions, each for a reason:

attributes (properties)
    no SA01, EX01, RT01: numpydoc documents an attribute by one sentence; the example is that of its class. No SS05: the
    sentence names a thing, such as "Covariates", and does not begin with a verb.
fields of results
    may stand under Attributes instead of Parameters (PR01): nobody makes results by hand.
hooks
    methods that PyMC calls and users do not need a docstring (GL08) and nothing more.
namespaces
    numpydoc cannot validate modules: they need a summary and, but for the cluster, an example.
"""

import ast
import builtins
import dataclasses
import doctest
import inspect
import re
import textwrap
from functools import cached_property

import pytest

import pymc_pacauc as pac

docscrape = pytest.importorskip("numpydoc.docscrape")
validation = pytest.importorskip("numpydoc.validate")

ASKED = ("GL", "SS", "PR", "RT", "YD", "SA01", "EX01")
OF_ATTRIBUTES = ("SA01", "EX01", "RT01", "SS05")
NAMESPACES = ("arrays", "certify", "cluster", "datasets", "plots", "results", "theorems")
HOOKS = {
    "TemperingSMC.competence",
    "TemperingSMC.set_rng",
    "TemperingSMC.setup_chain",
    "TemperingSMC.step",
    "EPApproximation.sample_dict_fn",
}


def ours(value):
    return (getattr(value, "__module__", None) or "").startswith("pymc_pacauc")


def public_names():
    """Name and object of every public function and class, of the namespaces too."""
    for name in pac.__all__:
        value = getattr(pac, name)
        if inspect.ismodule(value):
            assert name in NAMESPACES
            yield from ((f"{name}.{each}", getattr(value, each)) for each in value.__all__)
        elif ours(value):
            yield name, value


def members(cls):
    """Name and object of the public members that a class has from this package."""
    for owner in cls.__mro__:
        if ours(owner):
            yield from ((name, value) for name, value in vars(owner).items() if not name.startswith("_"))


def problems(name, value, exempt=()):
    found = validation.validate(docscrape.get_doc_object(value))["errors"]
    return [f"{name}: {code} {text}" for code, text in found if code.startswith(ASKED) and code not in exempt]


def problems_of_member(name, value):
    if isinstance(value, (property, cached_property)):
        return problems(name, value.fget if isinstance(value, property) else value.func, OF_ATTRIBUTES)
    function = getattr(value, "fn", getattr(value, "__func__", value))  # scikit-learn's available_if; class methods
    if not (inspect.isfunction(function) and ours(function)):
        return []
    if name in HOOKS:
        return [] if function.__doc__ else [f"{name}: GL08"]
    return problems(name, function)


def problems_of_class(name, cls):
    doc = docscrape.ClassDoc(cls, config={"show_class_members": False})
    listed = {each.strip() for entry in doc["Attributes"] + doc["Parameters"] for each in entry.name.split(",")}
    untyped = [f"{name}: {entry.name} has no type" for entry in doc["Attributes"] if not entry.type]
    made_by_hand = not (dataclasses.is_dataclass(cls) or getattr(cls, "_is_protocol", False))
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    missing = [f"{name}: {each.name} is not documented" for each in fields if each.name not in listed]
    return problems(name, cls, () if made_by_hand else ("PR01",)) + untyped + missing


def test_every_public_name_is_documented_in_full():
    found = []
    for name, value in public_names():
        if inspect.isclass(value):
            found += problems_of_class(name, value)
            for each, member in members(value):
                found += problems_of_member(f"{value.__name__}.{each}", member)
        elif inspect.isfunction(value):
            found += problems(name, value)
    assert not found, f"{len(found)} errors:\n" + "\n".join(found)


def test_namespaces_have_a_summary_and_an_example():
    for name in NAMESPACES:
        doc = inspect.getdoc(getattr(pac, name))
        assert doc.split("\n\n")[0].endswith("."), name
        assert ">>>" in doc or name == "cluster", f"pac.{name} has no example"


def test_examples_show_what_they_give():
    """An example has output; that of a fit on a cluster is not run."""
    silent = []
    for name, value in public_names():
        each = [(name, value)] + ([(f"{name}.{k}", v) for k, v in members(value)] if inspect.isclass(value) else [])
        for place, member in each:
            examples = doctest.DocTestParser().get_examples(inspect.getdoc(member) or "")
            silent += [place] if examples and not any(example.want for example in examples) else []
    assert silent == ["cluster.RowsFit"]


def documented_defaults(value):
    """Pairs (what "default ..." says, what the signature has) of the parameters of a function or a class."""
    doc = docscrape.ClassDoc if inspect.isclass(value) else docscrape.FunctionDoc
    try:
        given = inspect.signature(value).parameters
    except ValueError:
        return
    for entry in doc(value)["Parameters"]:
        said = re.search(r"default:? (.+?)$", entry.type)
        for name in (each.strip() for each in entry.name.split(",")):
            default = given[name].default if name in given else None
            if said and name in given and default is not inspect.Parameter.empty:
                yield name, said[1].strip("`"), default
            elif not (default is None or default is inspect.Parameter.empty or callable(default)):
                yield name, "nothing", default


def test_defaults_are_those_that_are_documented():
    compared, wrong = 0, []
    for name, value in public_names():
        functions = [(name, value)] if inspect.isfunction(value) or inspect.isclass(value) else []
        if inspect.isclass(value):
            functions += [(f"{name}.{each}", member) for each, member in members(value) if inspect.isfunction(member)]
        for place, function in functions:
            for parameter, said, default in documented_defaults(function):
                compared += 1
                try:
                    same = ast.literal_eval(said) == default
                except (ValueError, SyntaxError):
                    same = said in (str(default), repr(default))
                if not same:
                    wrong.append(f"{place}({parameter}): {said}, and is {default!r}")
    assert not wrong, "\n".join(wrong)
    assert compared > 100


def name_raised(node):
    return getattr(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, "id", None)


def raised_in(function, cls=None, depth=1, seen=()):
    """Names of exceptions that a function raises, and whether it warns; its helpers of this package are followed."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    if depth < 0 or function in seen:
        return set()
    module = vars(inspect.getmodule(function))
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found, caught = set(), set()  # caught: numbers of nodes that raise what is caught around them
    for block in (node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers):
        names = {getattr(each, "id", None) for one in block.handlers if one.type for each in ast.walk(one.type)}
        inside = [node for each in block.body for node in ast.walk(each) if isinstance(node, ast.Raise)]
        caught |= {id(node) for node in inside if name_raised(node) in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None and id(node) not in caught:
            found.add(name_raised(node))
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr == "warn":
                found.add("warns")
            own = isinstance(called, ast.Attribute) and getattr(called.value, "id", None) == "self"
            helper = getattr(cls, called.attr, None) if own else module.get(getattr(called, "id", None))
            if inspect.isfunction(helper) and ours(helper):
                found |= raised_in(helper, cls, depth - 1, (*seen, function))
    return found


def test_what_is_raised_is_documented():
    """Exceptions of a public function and of the helpers that it calls, against its Raises; warnings against Warns."""
    wrong = []
    for name, value in public_names():
        documented = [(name, value, None)] if inspect.isfunction(value) else []
        if inspect.isclass(value):
            documented = [(f"{name}.{each}", member, value) for each, member in members(value)]
        for place, function, cls in documented:
            if not inspect.isfunction(function) or not ours(function) or place in HOOKS:
                continue
            doc, module = docscrape.FunctionDoc(function), vars(inspect.getmodule(function))
            said = [vars(builtins).get(entry.type) or module.get(entry.type) for entry in doc["Raises"]]
            for raised in raised_in(function, cls):
                kind = vars(builtins).get(raised) or module.get(raised)
                if raised == "warns":
                    wrong += [] if doc["Warns"] else [f"{place} warns"]
                elif inspect.isclass(kind) and not any(issubclass(kind, each) for each in said if each):
                    wrong.append(f"{place} raises {raised}")
    assert not wrong, "\n".join(wrong)

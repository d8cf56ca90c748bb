"""Properties that hold for every input: up to 25 examples each in the fast run, 500 in the slow one.

A property says which public names it is about, ``@fuzz("select_gamma", "results.GammaSelection", ...)``;
``tests/test_fuzzing`` checks that every public name has one.
"""

import ast
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import pymc_pacauc as pac

FAST, SLOW = 25, 500
TESTS = Path(__file__).parent


def fuzz(*names, fast=FAST, **strategies):
    """A test, in two lengths, of a property of the public ``names`` that takes what the strategies draw.

    Names of a namespace are written with it, such as ``"arrays.fit"``. Costly properties have fewer ``fast`` examples.
    """

    def decorate(check):
        @pytest.mark.parametrize("examples", [fast, pytest.param(SLOW, marks=pytest.mark.slow)])
        def test(examples):
            for name in names:  # imported now: PyMC raises the recursion limit, which must not happen in an example
                attrgetter(name)(pac)
            options = {"max_examples": examples, "suppress_health_check": [HealthCheck.too_slow]}
            settings(**options)(given(**strategies)(check))()

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate


def fuzzed():
    """The public names of every property, by the property's name, and the names that it uses, itself or by helpers.

    Read without running it; helpers are the functions and values of the same file, and theirs.
    """
    found = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        bodies, decorators = {}, {}
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                bodies[node.name], decorators[node.name] = node.body, node.decorator_list
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                bodies[node.targets[0].id] = [node.value]
        for name, listed in decorators.items():
            for decorator in listed:
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "fuzz":
                    found[name] = [argument.value for argument in decorator.args], _used(name, bodies)
    return found


def _used(name, bodies):
    used, new = set(), {name}
    while new:
        parts = [part for each in new for line in bodies.get(each, ()) for part in ast.walk(line)]
        within = {getattr(part, "attr", getattr(part, "id", None)) for part in parts}
        new, used = within - used, used | within
    return used

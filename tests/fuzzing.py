"""Properties that hold for every input: 50 examples each in the fast run, 500 in the slow one."""

import pytest
from hypothesis import given, settings

EXAMPLES = [50, pytest.param(500, marks=pytest.mark.slow)]


def fuzz(**strategies):
    """A test, in two lengths, of a property that takes what the strategies draw."""

    def decorate(check):
        @pytest.mark.parametrize("examples", EXAMPLES)
        def test(examples):
            settings(max_examples=examples)(given(**strategies)(check))()

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate

"""Carrying out a plan, or refusing it."""

from dataclasses import replace

import pytest

from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.plan import Plan, Subsample
from tests.ep.test_plan import linear, sparse


@pytest.mark.parametrize(
    ("problem", "change", "message"),
    [
        (linear(30), {"power": 1.5}, "power must be in"),
        (linear(30), {"pairs": Subsample(4), "where": print}, "With client= all pairs are used"),
        (sparse(), {"where": print}, "client= is for Gaussian priors.*leave client out"),
        (sparse(), {"power": 0.0}, 'Variational Bayes is for Gaussian priors; .* use method="ep"'),
        (sparse(), {"power": 0.5}, "use power=1, not 0.5"),
        (sparse(), {"pairs": Subsample(4)}, "subsample of pairs is for Gaussian priors"),
        (sparse(), {"coordinates": "features"}, 'Gaussian priors; .*: use "coefficients"'),
    ],
)
def test_plans_that_no_engine_can_carry_out(problem, change, message):
    plan = replace(Plan(problem.pairs.n_pairs), **change)
    with pytest.raises((UnsupportedError, ValueError), match=message):
        fit(problem, plan)

"""Every proposal is reversible with respect to the density it says."""

from dataclasses import dataclass

import numpy as np
import pytest

from pymc_pacauc.smc.coordinates import (
    GnomonicChart,
    StudentFit,
    standard_fit,
    unit,
)
from pymc_pacauc.smc.proposals import CrankNicolson, InChart, Lifted, RandomWalk, StudentCrankNicolson, around
from tests.smc.test_paths import GAUSSIAN, assert_zero

CHART = GnomonicChart(unit(np.array([[1.0, 2.0, -1.0, 0.5]]))[0])


def in_chart(w):
    """From the plane to the upper hemisphere."""
    return CHART.to_sphere(w)


@dataclass(frozen=True, eq=False)
class Reversible:
    """A proposal, draws from the distribution it is reversible with respect to, and the log-density of that.

    On the sphere the density is with respect to the uniform distribution.
    """

    proposal: object
    draw: object
    logp: object


PROPOSALS = {
    "random walk": Reversible(RandomWalk(GAUSSIAN), None, lambda x: np.zeros(len(x))),
    "Crank-Nicolson": Reversible(
        CrankNicolson(GAUSSIAN), lambda size, rng: GAUSSIAN.restore(rng.standard_normal((size, 3))), GAUSSIAN.logp
    ),
    "Student": Reversible(around(GAUSSIAN), around(GAUSSIAN).fit.draw, around(GAUSSIAN).fit.logp),
    "Student, 4 degrees": Reversible(
        StudentCrankNicolson(StudentFit(GAUSSIAN, 4.0)), StudentFit(GAUSSIAN, 4.0).draw, StudentFit(GAUSSIAN, 4.0).logp
    ),
    "lifted": Reversible(
        Lifted(CrankNicolson(standard_fit(3))),
        lambda size, rng: unit(rng.standard_normal((size, 3))),
        lambda x: np.zeros(len(x)),
    ),
    "in a chart": Reversible(
        InChart(CHART, around(GAUSSIAN)),
        lambda size, rng: in_chart(around(GAUSSIAN).fit.draw(size, rng)),
        lambda x: around(GAUSSIAN).fit.logp(CHART.to_plane(x)[0]) - CHART.log_uniform(CHART.to_plane(x)[0]),
    ),
}


@pytest.fixture(params=PROPOSALS)
def reversible(request):
    return PROPOSALS[request.param]


class TestProposals:
    @pytest.mark.parametrize("step", [0.3, 1.0])
    def test_correction_is_antisymmetric(self, reversible, step):
        """It is a difference of one function at the two points: going back takes back what going took."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal((100, 3)) if reversible.draw is None else reversible.draw(100, rng)
        proposed, correction = reversible.proposal(x, step, rng)
        assert proposed.shape == x.shape
        assert not np.isclose(proposed, x).all(axis=1).any()
        np.testing.assert_allclose(correction, reversible.logp(x) - reversible.logp(proposed), atol=1e-8)

    @pytest.mark.parametrize("step", [0.3, 1.0])
    @pytest.mark.parametrize("name", [name for name, entry in PROPOSALS.items() if entry.draw is not None])
    def test_reversible(self, name, step):
        """E[f(x) g(x')] = E[g(x) f(x')] when x has the distribution the proposal claims; which it then keeps."""
        reversible, rng = PROPOSALS[name], np.random.default_rng(1)
        x = reversible.draw(40_000, rng)
        proposed, _ = reversible.proposal(x, step, rng)
        f, g = (lambda points: np.tanh(points[:, 0] - points[:, 2])), (lambda points: np.tanh(points[:, 1] ** 2))
        assert_zero(np.column_stack([f(x) * g(proposed) - g(x) * f(proposed), f(proposed) - f(x), g(proposed) - g(x)]))

    def test_sign(self, reversible):
        rng = np.random.default_rng(2)
        x = rng.standard_normal((100, 3)) if reversible.draw is None else reversible.draw(100, rng)
        proposed, _ = reversible.proposal(x, 1.0, rng)
        if reversible.proposal.keeps_sign:
            assert ((proposed @ CHART.pole > 0) == (x @ CHART.pole > 0)).all()
        assert reversible.proposal.jitter == 0.0

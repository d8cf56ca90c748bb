"""Every proposal is reversible with respect to the density it says."""

from dataclasses import dataclass

import numpy as np
import pytest

from pymc_pacauc.smc.coordinates import GnomonicChart, unit
from pymc_pacauc.smc.moves import InChart, RandomWalk, TwoTails
from tests.smc.test_paths import GAUSSIAN, assert_zero

CHART = GnomonicChart(unit(np.array([[1.0, 2.0, -1.0, 0.5]]))[0])
HEAVY, LESS_HEAVY = GAUSSIAN.around(), GAUSSIAN.around(4.0)


@dataclass(frozen=True, eq=False)
class Reversible:
    """A proposal, draws from the distribution it is reversible with respect to, and the log-density of that.

    That of a move in a chart, which keeps lengths, is with respect to the uniform distribution on the sphere.
    """

    proposal: object
    draw: object
    logp: object


PROPOSALS = {
    "random walk": Reversible(RandomWalk(**vars(GAUSSIAN)), None, lambda x: np.zeros(len(x))),
    "Crank-Nicolson": Reversible(GAUSSIAN, GAUSSIAN.draw, GAUSSIAN.logp),
    "Student": Reversible(HEAVY, HEAVY.draw, HEAVY.logp),
    "Student, 4 degrees": Reversible(LESS_HEAVY, LESS_HEAVY.draw, LESS_HEAVY.logp),
    "in a chart": Reversible(
        InChart(CHART, HEAVY),
        lambda size, rng: CHART.to_sphere(HEAVY.draw(size, rng), rng.choice([-2.0, 0.5, 3.0], size)),
        lambda x: HEAVY.logp(CHART.to_plane(x)[0]) - CHART.log_uniform(CHART.to_plane(x)[0]),
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

    def test_jitter(self, reversible):
        assert reversible.proposal.jitter == 0.0


def test_a_move_in_a_chart_keeps_hemisphere_and_length():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((100, 4))
    proposed, _ = InChart(CHART, HEAVY)(x, 1.0, rng)
    assert ((proposed @ CHART.pole > 0) == (x @ CHART.pole > 0)).all()
    np.testing.assert_allclose((proposed**2).sum(axis=1), (x**2).sum(axis=1))


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_moves_of_two_tails_keep_a_target_that_has_neither(step):
    """With its correction the move is reversible with respect to a Gaussian: E[f(x) g(x')] = E[g(x) f(x')]."""
    rng = np.random.default_rng(3)
    x = GAUSSIAN.draw(40_000, rng)
    proposed, correction = TwoTails(HEAVY)(x, step, rng)
    log_ratio = GAUSSIAN.logp(proposed) - GAUSSIAN.logp(x) + correction
    accepted = np.log(rng.random(len(x))) < log_ratio
    assert 0.3 < accepted.mean() < 0.99
    assert TwoTails(HEAVY).jitter == HEAVY.jitter
    moved = np.where(accepted[:, None], proposed, x)
    f, g = (lambda points: np.tanh(points[:, 0] - points[:, 2])), (lambda points: np.tanh(points[:, 1] ** 2))
    assert_zero(np.column_stack([f(x) * g(moved) - g(x) * f(moved), f(moved) - f(x), g(moved) - g(x)]))

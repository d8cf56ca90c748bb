"""What every path and every move must do, whoever wrote it. A new path is entered in ``PATHS``, a proposal in
``PROPOSALS`` of ``test_moves_proposals.py``; the moves are those of the package's own table.

All statements about distributions are checked by importance sampling from the base of a path, which needs no other
engine: weights ``exp(t * log_tilt)`` stand for the density at temperature t exactly. Errors are four standard errors,
because there are hundreds of comparisons.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_pacauc as pac
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.coordinates import Fit
from pymc_pacauc.smc.moves import MOVES, Situation, choose_move, fit_stage, metropolis
from pymc_pacauc.smc.paths import (
    Bridge,
    ChartBridge,
    DirectionPath,
    LinearPath,
    Path,
    Population,
    bridge_path,
    prior_path,
)
from tests.marginals import exact_marginal, exact_single
from tests.paths import ModelPath

GAMMA = 6.0
RNG = np.random.default_rng(3)
X = RNG.standard_normal((14, 2))
Y = (X[:, 0] + RNG.standard_normal(14) > 0).astype(int)
FIT = (np.array([0.9, 0.1]), np.array([[0.5, 0.1], [0.1, 0.7]]))


def exact_log_evidence(prior, columns=2):
    if columns == 1:
        return exact_single(X[:, 0], Y, GAMMA, prior_pdf=prior.pdf, low=-30, high=30).log_evidence
    return exact_marginal(
        X, Y, GAMMA, 0, prior_pdf=prior.pdf, other_cdf=lambda s, t: prior.cdf(s), low=-30, high=30, cells=20_000
    ).log_evidence


@dataclass(frozen=True, eq=False)
class Case:
    """A path to a known target: its type, its scores' design, its exact evidence, draws to use."""

    path: Path
    kind: type
    design: np.ndarray
    log_evidence: float
    draws: int = 20_000


def linear(d=2, **prior):
    return prior_path(linear_gaussian_problem(X[:, :d], Y, GAMMA, **prior))


WIDE = np.array([[0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 0.8, -0.6]])  # orthonormal rows: two directions of four reach scores


def features():
    """The target of ``linear()``, of four coefficients."""
    return prior_path(linear_gaussian_problem(X @ WIDE, Y, GAMMA))


def laplace():
    return ModelPath(
        prior_logp=lambda theta: stats.laplace.logpdf(theta).sum(axis=1),
        risk=lambda theta: direct_risk(theta, X),
        prior_draw=lambda size, rng: rng.laplace(size=(size, 2)),
        gamma=GAMMA,
        dimension=2,
    )


def graph():
    with pm.Model() as model:
        theta = pm.Laplace("theta", 0.0, 1.0, shape=2)
        pac.AUCPotential("auc", X @ theta, Y, gamma=GAMMA)
    return PyMCPath(model)


def paths():
    shifted = stats.norm(0.7, 1.3)
    for_shifted = {"prior_mean": 0.7, "prior_covariance": 1.3**2}
    normal, heavy = exact_log_evidence(stats.norm()), exact_log_evidence(stats.laplace())
    one = exact_log_evidence(stats.norm(), 1)
    small = FIT[0][:1], FIT[1][:1, :1]
    wide = FIT[0] @ WIDE, WIDE.T @ FIT[1] @ WIDE + np.eye(4) - WIDE.T @ WIDE
    return {
        "whitened": Case(linear(**for_shifted), LinearPath, X, exact_log_evidence(shifted)),
        "direction": Case(linear(), DirectionPath, X, normal),
        "features": Case(features(), DirectionPath, X @ WIDE, normal),
        "features, from a fit": Case(bridge_path(features(), *wide), ChartBridge, X @ WIDE, normal),
        "direction of one": Case(linear(1), DirectionPath, X[:, :1], one),
        "functions": Case(laplace(), ModelPath, X, heavy),
        "graph": Case(graph(), PyMCPath, X, heavy, 4000),
        "whitened, from a fit": Case(bridge_path(linear(**for_shifted), *FIT), Bridge, X, exact_log_evidence(shifted)),
        "direction, from a fit": Case(bridge_path(linear(), *FIT), ChartBridge, X, normal),
        "one, from a fit": Case(bridge_path(linear(1), *small), Bridge, X[:, :1], one),
        "functions, from a fit": Case(bridge_path(laplace(), *FIT), Bridge, X, heavy),
        "graph, from a fit": Case(bridge_path(graph(), *FIT), Bridge, X, heavy, 4000),
    }


PATHS = paths()


def direct_risk(theta, design):
    """Misranked pairs, one by one."""
    scores = theta @ design.T
    difference = scores[:, Y == 1][:, :, None] - scores[:, Y == 0][:, None, :]
    return ((difference < 0) + 0.5 * (difference == 0)).mean(axis=(1, 2))


def population_of(path, size, seed):
    x = path.draw(size, np.random.default_rng(seed))
    return Population(x, path.evaluate(x), np.arange(size))


def weights_at(path, population, temperature):
    weights = np.exp(temperature * population.energies.log_tilt)
    return weights / weights.sum()


def assert_zero(values, weights=None):
    """Weighted means of columns are zero within four standard errors (delta method)."""
    values = values.reshape(len(values), -1)
    weights = np.full(len(values), 1.0 / len(values)) if weights is None else weights
    mean = weights @ values
    error = np.sqrt(weights**2 @ (values - mean) ** 2)
    assert (np.abs(mean) <= 4 * error + 1e-12).all(), f"{mean} with errors {error}"


def statistics(path, population):
    """Functions by which two populations are compared: bounded, so that heavy tails do not hide a difference."""
    x = path.embed(population.x)
    return np.column_stack([np.tanh(x), np.tanh(x**2 / 4), population.energies.risk, population.energies.log_tilt])


@pytest.fixture(params=PATHS)
def case(request):
    return PATHS[request.param]


class TestPaths:
    def test_type(self, case):
        assert type(case.path) is case.kind

    def test_shapes(self, case):
        path, rng = case.path, np.random.default_rng(0)
        population = population_of(path, 50, 0)
        assert population.x.shape == (50, path.dimension)
        assert path.embed(population.x).shape[0] == 50
        energies = population.energies
        theta, risk = path.finish(population, rng)
        log_density, slope = path.log_density(theta, risk)
        assert theta.shape == (50, case.design.shape[1])
        for values in (energies.log_base, energies.log_tilt, energies.risk, risk, log_density, slope):
            assert values.shape == (50,)
            assert values.dtype == np.float64
            assert np.isfinite(values).all()
        assert energies.finite.all()
        assert 0.0 < path.end <= path.gamma == GAMMA

    def test_draws_have_the_density_of_the_base(self, case):
        """E[g / base] = 1 for every normalised density g: here two narrow ones."""
        path = case.path
        population = population_of(path, case.draws, 1)
        x, log_base = population.x, population.energies.log_base
        for side in (-1.0, 1.0):
            quartiles = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
            width = quartiles[2] - quartiles[0]
            log_g = Fit(quartiles[1] + 0.3 * side * width, 0.4 * width).logp(x)
            assert_zero(np.exp(log_g - log_base) - 1.0)

    def test_evidence_of_the_target(self, case):
        population = population_of(case.path, case.draws, 2)
        weights = np.exp(case.path.end * population.energies.log_tilt - case.log_evidence)
        assert_zero(weights - 1.0)

    def test_reported_risk_is_that_of_theta(self, case):
        theta, risk = case.path.finish(population_of(case.path, 200, 3), np.random.default_rng(0))
        np.testing.assert_allclose(risk, direct_risk(theta, case.design), atol=1e-12)

    def test_log_density_is_the_targets(self, case):
        """Up to its constant, and its slope in gamma is minus the risk where the AUC term is all there is."""
        theta, risk = case.path.finish(population_of(case.path, 200, 4), np.random.default_rng(0))
        log_density, slope = case.path.log_density(theta, risk)
        np.testing.assert_allclose(slope, -risk, atol=1e-12)
        flat, _ = case.path.log_density(theta, np.zeros(200))
        if case.kind in (LinearPath, DirectionPath):
            np.testing.assert_allclose(log_density, flat - GAMMA * risk)

    @pytest.mark.parametrize("share", [0.3, 1.0])
    def test_refresh_keeps_the_distribution(self, case, share):
        path, temperature = case.path, share * case.path.end
        before = population_of(path, case.draws, 5)
        after = path.refresh(before, temperature, np.random.default_rng(6))
        assert_zero(statistics(path, after) - statistics(path, before), weights_at(path, before, temperature))
        fresh = path.evaluate(after.x)
        np.testing.assert_allclose(after.energies.log_tilt, fresh.log_tilt, atol=1e-9)
        np.testing.assert_allclose(after.energies.risk, fresh.risk, atol=1e-9)

    @pytest.mark.parametrize("share", [0.3, 1.0])
    @pytest.mark.parametrize("step", [0.4, 1.0])
    @pytest.mark.parametrize("move", MOVES)
    def test_moves_keep_the_distribution(self, case, move, step, share):
        path, temperature = case.path, share * case.path.end
        if not MOVES[move].suits(path):
            with pytest.raises(ValueError, match=f'move="{move}" needs'):
                choose_move(move, path, 1000)
            return
        others = population_of(path, 500, 7)
        ep = fit_stage(path.ep_problem, temperature, None) if move == "ep" else None
        rng = np.random.default_rng(8)
        situation = Situation(path, others.x, weights_at(path, others, temperature), path.base_move(others.x), ep)
        before = population_of(path, case.draws, 9)
        after, acceptance, failed = metropolis(path, MOVES[move].fit(situation), before, temperature, step, rng)
        assert 0.05 < acceptance <= 1.0
        assert failed == 0
        assert_zero(statistics(path, after) - statistics(path, before), weights_at(path, before, temperature))
        fresh = path.evaluate(after.x)
        np.testing.assert_allclose(after.energies.log_base, fresh.log_base, atol=1e-9)
        np.testing.assert_allclose(after.energies.log_tilt, fresh.log_tilt, atol=1e-9)


def test_a_path_from_a_fit_has_no_bridge():
    with pytest.raises(ValueError, match="starts from a fit already"):
        bridge_path(PATHS["functions, from a fit"].path, *FIT)


# -- proposals -------------------------------------------------------------------------------------------------------

FACTOR = np.array([[1.2, 0.0, 0.0], [0.4, 0.7, 0.0], [-0.3, 0.2, 0.5]])
GAUSSIAN = Fit(np.array([0.5, -1.0, 0.2]), FACTOR)


# -- fits ------------------------------------------------------------------------------------------------------------

COVARIANCE = FACTOR @ FACTOR.T


@pytest.mark.parametrize(
    ("fit", "covariance"),
    [(GAUSSIAN, COVARIANCE), (Fit(GAUSSIAN.mean, np.array([1.0, 2.0, 3.0])), np.diag([1.0, 4.0, 9.0]))],
)
def test_fits_are_the_gaussian_they_say(fit, covariance):
    x = np.random.default_rng(0).standard_normal((20, fit.dimension))
    z = fit.standardise(x)
    np.testing.assert_allclose(fit.restore(z), x)
    np.testing.assert_allclose(fit.logp(x), stats.multivariate_normal(fit.mean, covariance).logpdf(x))
    student = stats.multivariate_t(fit.mean, covariance, df=3.0)
    np.testing.assert_allclose(fit.around(3.0).logp(x), student.logpdf(x))

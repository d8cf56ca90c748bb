"""Hyper-parameters integrated over, against exact sums and quadrature."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.tune import nested
from pymc_pacauc.tune.nested import Conditional, Density, integrate, maximum
from tests.oracles import exact_plane, plane_data


def half_normal(phi, scale=1.0):
    """Log density of log s, s ~ HalfNormal(scale)."""
    return stats.halfnorm(scale=scale).logpdf(np.exp(phi)).sum(axis=1) + phi.sum(axis=1)


def ratio_problem(rows, labels, gamma=30.0):
    """theta ~ N(0, diag(1, s^2)): given s exactly solvable, as whitened theta is isotropic in the plane."""

    def problem_at(phi):
        return linear_gaussian_problem(rows, labels, gamma, prior_covariance=[1.0, np.exp(2.0 * phi[0])])

    return Conditional(problem_at, half_normal, np.array([-0.5]), np.array([1.0]))


def exact_ratio(rows, labels, gamma=30.0):
    """log Z and the mean and sd of s, by quadrature over log s of finite sums."""
    grid = np.linspace(-9.0, 2.0, 221)
    logs = [exact_plane(rows * [1.0, np.exp(x)], labels, gamma).log_evidence for x in grid]
    density = np.exp(np.array(logs) + half_normal(grid[:, None]))
    step, s = grid[1] - grid[0], np.exp(grid)
    mean = density @ s / density.sum()
    return np.log(density.sum() * step), mean, np.sqrt(density @ (s - mean) ** 2 / density.sum())


@pytest.mark.parametrize("seed", [11, 12])
def test_one_scale_against_quadrature_of_finite_sums(seed):
    rows, labels = plane_data(n=40, seed=seed)
    found = integrate(Density(ratio_problem(rows, labels)))
    log_z, mean, sd = exact_ratio(rows, labels)
    s = np.exp(found.phi[:, 0])
    ours = found.weights @ s
    assert found.log_evidence == pytest.approx(log_z, abs=0.3)  # EP's own bias, some tenths of a nat
    assert ours == pytest.approx(mean, abs=0.1 * sd)
    assert np.sqrt(found.weights @ (s - ours) ** 2) == pytest.approx(sd, rel=0.1)
    assert found.failed == 0


def test_the_lattice_is_quadrature():
    """The same sum on a fine grid of the same fits."""
    rows, labels = plane_data(n=40)
    conditional = ratio_problem(rows, labels)
    found = integrate(Density(conditional))
    density = Density(conditional, tolerance=1e-6)
    grid = np.linspace(-7.0, 1.5, 60)
    logs = np.array([density.at(np.array([x])).log_density for x in grid])
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(logs) + np.log(grid[1] - grid[0]), abs=0.01)
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    mean = weights @ np.exp(grid)
    sd = np.sqrt(weights @ (np.exp(grid) - mean) ** 2)
    assert found.weights @ np.exp(found.phi[:, 0]) == pytest.approx(mean, abs=0.02 * sd)
    rng = np.random.default_rng(0)
    drawn = np.exp(found.lattice.draw(rng.choice(found.weights.size, 4000, p=found.weights), rng)[:, 0])
    assert drawn.mean() == pytest.approx(mean, abs=0.08 * sd)
    assert drawn.std() == pytest.approx(sd, rel=0.1)


def known_density(k):
    """A likelihood that is Gaussian in phi, put in as an absorbed density; log Z and the posterior's mean and sd."""
    base, centre = linear_gaussian_problem([[0.0], [1.0]], [0, 1], 1.0), np.linspace(0.5, -1.0, k)

    def problem_at(phi):
        return replace(base, absorbed=float(stats.norm(centre, 0.7).logpdf(phi).sum()))

    conditional = Conditional(
        problem_at, lambda phi: stats.norm(0.0, 1.0).logpdf(phi).sum(axis=1), np.zeros(k), np.ones(k)
    )
    variance = 1.0 / (1.0 + 1.0 / 0.49)
    log_z = np.log((1.0 + np.exp(-1.0)) / 2.0) + stats.norm(0.0, np.sqrt(1.49)).logpdf(centre).sum()
    return conditional, log_z, variance * centre / 0.49, np.sqrt(variance)


@pytest.mark.parametrize("k", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_integrals_of_known_densities(k):
    conditional, log_z, exact, spread = known_density(k)
    found = integrate(Density(conditional))
    assert found.log_evidence == pytest.approx(log_z, abs=0.02)
    mean = found.weights @ found.phi
    np.testing.assert_allclose(mean, exact, atol=0.06 * spread)
    sd = np.sqrt(found.weights @ (found.phi - mean) ** 2)
    np.testing.assert_allclose(sd, spread, rtol=0.06)
    mode = maximum(Density(conditional))
    np.testing.assert_allclose(mode.phi[0], exact, atol=0.02)


@pytest.mark.parametrize("k", [1, 2])
def test_draws_within_cells_have_the_density(k):
    """In distribution, and so for any function: uniform in cells, standard deviations are 4 and 8 % too large."""
    conditional, _, exact, spread = known_density(k)
    found, rng = integrate(Density(conditional)), np.random.default_rng(1)
    drawn = found.lattice.draw(rng.choice(found.weights.size, 40_000, p=found.weights), rng)
    for column, mean in zip(drawn.T, exact, strict=True):
        assert column.std() == pytest.approx(spread, rel=0.02)
        assert stats.kstest(column, stats.norm(mean, spread).cdf).statistic < 0.02
        assert np.exp(column).std() == pytest.approx(stats.lognorm(spread, scale=np.exp(mean)).std(), rel=0.04)


def test_what_does_not_converge_is_left_out_counted_and_warned_of(monkeypatch):
    rows, labels = plane_data(n=40)
    density = Density(ratio_problem(rows, labels), options={"max_sweeps": 1})
    with pytest.raises(ValueError, match="did not converge at any value"):
        integrate(density)

    def fails_at_some(problem, *arguments, **options):
        found = fit(problem, *arguments, **options)
        return replace(found, converged=not 0.2 < problem.prior.factor[1] < 0.4)

    monkeypatch.setattr(nested, "fit", fails_at_some)
    with pytest.warns(ConvergenceWarning, match=r"did not converge at \d+ of \d+ values"):
        found = integrate(Density(ratio_problem(rows, labels)))
    assert found.failed > 0
    assert not any(0.2 < np.exp(phi[0]) < 0.4 for phi in found.phi)


def test_the_gradient_of_spikes_takes_no_fit_and_is_a_difference_quotient():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 3))
    y = X[:, 0] + rng.normal(size=50) > 0.0

    def problem_at(phi):
        p, v1 = 1.0 / (1.0 + np.exp(-phi[0])), np.exp(phi[1])
        return spike_slab_problem(X, y, 40.0, inclusion_probability=p, v0=0.01 * v1, v1=v1)

    conditional = Conditional(problem_at, half_normal, np.zeros(2), np.ones(2))
    density = Density(conditional, tolerance=1e-8)
    at = np.array([-0.4, 0.3])
    found = density.gradient(density.at(at))
    assert len(density.points) == 1
    for j, step in enumerate(1e-3 * np.eye(2)):
        up, down = (density.at(at + sign * step).log_density for sign in (1.0, -1.0))
        assert found[j] == pytest.approx((up - down) / 2e-3, abs=1e-3)


def test_the_gradient_of_a_scale_takes_no_fit_and_is_a_difference_quotient():
    density = Density(ratio_problem(*plane_data(n=40)), tolerance=1e-8)
    at = np.array([-0.4])
    found = density.gradient(density.at(at))
    assert len(density.points) == 1
    up, down = (density.at(at + step).log_density for step in (1e-3, -1e-3))
    assert found[0] == pytest.approx((up - down) / 2e-3, abs=1e-3)


def test_the_gradient_along_a_change_of_offsets_is_a_difference_of_evidences():
    X, y = plane_data(40)

    def problem_at(phi):
        return linear_gaussian_problem(X, y, 20.0, offset=phi[0] * X[:, 0])

    density = Density(Conditional(problem_at, half_normal, np.zeros(1), np.ones(1)), tolerance=1e-8)
    at = np.array([0.4])
    here = density.at(at)
    found = density.gradient(here)
    assert len(density.points) == 3
    up, down = (density.at(at + step) for step in (1e-2, -1e-2))
    assert found[0] == pytest.approx((up.log_density - down.log_density) / 2e-2, abs=1e-2)
    assert abs(up.fit.log_evidence - down.fit.log_evidence) / 2e-2 > 0.1


@pytest.mark.parametrize(("beside", "warns"), [(0.03, True), (0.01, False)])
def test_a_value_without_a_fit_is_told_of_where_its_neighbour_counts(beside, warns, monkeypatch):
    """Three values, of which the last has no fit; the second, next to it, has this share of the others' weight."""
    problem = ratio_problem(*plane_data(n=40)).problem_at(np.zeros(1))
    masses = {0.0: 1.0 - beside, 1.0: beside, 1.1: 1.0}
    conditional = Conditional(
        lambda phi: replace(problem, absorbed=float(phi[0] == 1.1)),
        lambda phi: np.array([np.log(masses[x]) for x in phi[:, 0]]),
        np.zeros(1),
        np.ones(1),
        values=np.array([[0.0], [1.0], [1.1]]),
    )

    def fails_at_the_last(problem, *arguments, **options):
        return replace(fit(problem, *arguments, **options), converged=problem.absorbed == 0.0)

    monkeypatch.setattr(nested, "fit", fails_at_the_last)
    told = pytest.warns(ConvergenceWarning, match="neighbours have weight") if warns else contextlib.nullcontext()
    with told:
        found = integrate(Density(conditional))
    np.testing.assert_allclose(found.weights, sorted([beside, 1.0 - beside], reverse=True), atol=1e-4)
    assert found.failed == 1


def test_the_evidence_at_the_mode_has_what_was_absorbed():
    ratio = ratio_problem(*plane_data(n=40))

    def log_evidence(absorbed):
        there = replace(ratio, problem_at=lambda phi: replace(ratio.problem_at(phi), absorbed=absorbed))
        return maximum(Density(there)).log_evidence

    assert log_evidence(1.5) - log_evidence(0.0) == pytest.approx(1.5, abs=1e-6)


def test_fits_start_from_the_nearest_point(monkeypatch):
    starts = []
    monkeypatch.setattr(nested, "_start", lambda here, problem: starts.append(here))
    density = Density(known_density(1)[0])
    far, near, _ = (density.at(np.array([phi])) for phi in (-1.0, 1.0, 0.9))
    assert [id(each) for each in starts] == [id(far.fit), id(near.fit)]


def test_no_slope_along_a_change_of_offsets():
    """There is a formula for changes of the prior's scale only: those of offsets move the scores themselves."""
    X, y = plane_data(40)
    here = fit(linear_gaussian_problem(X, y, 20.0))
    assert nested._slope(here, here.problem, 0.1) == pytest.approx(0.0, abs=1e-9)
    assert nested._slope(here, linear_gaussian_problem(X, y, 20.0, offset=X[:, 0]), 0.1) is None

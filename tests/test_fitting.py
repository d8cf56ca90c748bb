"""One way from a problem to a fit: what every result has, for every prior and method."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_pacauc import arrays, fitting
from pymc_pacauc.certify.matchings import _log_sum
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.estimator.calibration import fit_softmax
from pymc_pacauc.fitting import fit, fits_along
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.tune.coverage import _smoothed
from pymc_pacauc.tune.gamma import weighted_gamma
from tests.oracles import exact_plane, plane_data
from tests.quadrature import exact_spike_slab_plane

TIGHT = {"tolerance": 1e-9, "max_sweeps": 1000}


def data(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (X[:, 0] - 0.7 * X[:, 1] + rng.logistic(size=n) > 0.3).astype(int)


def gaussian(d=5, **options):
    X, y = data(d=d)
    return linear_gaussian_problem(X, y, 30.0, prior_covariance=np.linspace(0.5, 1.5, d), **options)


def sparse(d=5, v0=0.02, p=0.3, **options):
    X, y = data(d=d)
    return spike_slab_problem(X, y, 30.0, inclusion_probability=p, v0=v0, v1=np.linspace(0.5, 1.5, d), **options)


KINDS = {
    "gaussian": (gaussian, "ep"),
    "variational": (gaussian, "vb"),
    "mixture": (sparse, "ep"),
    "dirac": (lambda **options: sparse(v0=0.0, **options), "ep"),
    "dual": (lambda **options: gaussian(64, **options), "ep"),
    "sparse dual": (lambda **options: sparse(64, v0=0.0, p=0.1, **options), "ep"),
}


@pytest.mark.parametrize("kind", ["mixture", "dirac", "sparse dual"])
def test_spike_slab_gradient_by_finite_differences(kind):
    problem = KINDS[kind][0]()
    spikes, v1 = problem.spikes, problem.prior.factor**2
    rng = np.random.default_rng(3)
    gradient = fit(problem, **TIGHT).evidence_gradient()
    start = fit(problem, **TIGHT)

    def log_evidence(p, v0, v1):
        changed = spike_slab_problem(problem.X, problem.pairs, problem.gamma, inclusion_probability=p, v0=v0, v1=v1)
        return fit(changed, **TIGHT, start=start if np.array_equal(v1, problem.prior.factor**2) else None).log_evidence

    p, v0 = spikes.inclusion_probability, spikes.ratio * v1
    direction = rng.uniform(0.5, 1.5, problem.d)
    h = 1e-4
    up, down = (log_evidence(p * (1 + s * h * direction), v0, v1) for s in (1, -1))
    assert gradient.inclusion_probability @ (p * direction) == pytest.approx((up - down) / (2 * h), rel=1e-3, abs=1e-4)
    if v0.all():
        up, down = (log_evidence(p, v0 * (1 + s * h * direction), v1) for s in (1, -1))
        assert gradient.v0 @ (v0 * direction) == pytest.approx((up - down) / (2 * h), rel=1e-3, abs=1e-4)
    else:
        h0 = 1e-7
        up = log_evidence(p, h0 * direction, v1)
        assert gradient.v0 @ direction == pytest.approx((up - log_evidence(p, v0, v1)) / h0, rel=2e-2)
    up, down = (log_evidence(p, v0, v1 * (1 + s * h * direction)) for s in (1, -1))
    assert gradient.v1 @ (v1 * direction) == pytest.approx((up - down) / (2 * h), rel=1e-3, abs=1e-4)
    # A common scale of spike and slab is not seen by the risk.
    assert gradient.v1 @ v1 + gradient.v0 @ v0 == pytest.approx(0.0, abs=1e-5)


def test_gradient_of_a_gaussian_coefficient_beside_sparse_ones():
    X, y = data(d=3)
    v1 = np.array([1.0, 0.7, 1.3])
    problem = spike_slab_problem(X, y, 30.0, inclusion_probability=1.0, v0=0.0, v1=v1)
    dense = linear_gaussian_problem(X, y, 30.0, prior_covariance=v1)
    found, expected = (fit(p, **TIGHT).evidence_gradient() for p in (problem, dense))
    np.testing.assert_allclose(found.v1, expected.variances, atol=1e-6)
    assert not found.inclusion_probability.any()
    assert not found.v0.any()


class TestImportance:
    @pytest.mark.parametrize(("p", "v0"), [(0.5, 0.0), (0.3, 0.05)])
    def test_exact_answers_in_the_plane(self, p, v0):
        X, y = plane_data(slope=(1.0, -0.6))
        exact = exact_spike_slab_plane(X, y, 60.0, p, v0, 1.0)
        result = fit(spike_slab_problem(X, y, 60.0, inclusion_probability=p, v0=v0))
        draws = result.importance(40_000, np.random.default_rng(5))
        estimate, error = log_mean(draws.log_weights)
        assert abs(estimate - exact.log_evidence) < 4 * error < 0.2
        np.testing.assert_array_equal(draws.risk, result.problem.risk(draws.theta))
        weights = np.exp(draws.log_weights - np.logaddexp.reduce(draws.log_weights))
        for values, truth in ((draws.theta, exact.mean), (draws.risk[:, None], exact.expected_risk)):
            mean = weights @ values
            error = np.sqrt(weights**2 @ (values - mean) ** 2)
            assert (np.abs(mean - truth) < 4 * error + 1e-3).all()
        if v0 == 0.0:
            assert weights @ (draws.theta != 0.0) == pytest.approx(exact.inclusion, abs=0.02)

    def test_gaussian_prior(self):
        X, y = plane_data(300)
        draws = fit(linear_gaussian_problem(X, y, 40.0)).importance(4000, np.random.default_rng(1))
        estimate, error = log_mean(draws.log_weights)
        assert abs(estimate - exact_plane(X, y, 40.0).log_evidence) < 4 * error < 0.1

    def test_too_many_coefficients(self):
        with pytest.raises(UnsupportedError, match=r"10 with a spike.*TemperingSMC"):
            fit(sparse(12)).importance(10, np.random.default_rng(0))


class TestDraws:
    def test_a_dirac_spike_gives_exact_zeros_with_its_probability(self):
        result = fit(sparse(v0=0.0))
        theta = result.posterior.draw(40_000, np.random.default_rng(7))
        included = (theta != 0.0).mean(axis=0)
        np.testing.assert_allclose(included, result.posterior.inclusion_probability, atol=0.012)

    def test_draws_rise_with_those_of_the_gaussian_so_that_its_dependence_is_kept(self):
        posterior = fit(sparse(v0=0.0)).posterior
        theta = posterior.draw(2000, np.random.default_rng(9))
        w = posterior.gaussian.draw(2000, np.random.default_rng(9))
        for k in range(theta.shape[1]):
            assert (np.diff(theta[np.argsort(w[:, k]), k]) >= 0.0).all()


class TestRefusals:
    def test_variational_bayes_under_a_spike_and_slab_prior(self):
        with pytest.raises(UnsupportedError, match=r"Variational Bayes is for Gaussian priors; .* method=\"ep\""):
            fit(sparse(), "vb")

    def test_fractional_ep_under_a_spike_and_slab_prior(self):
        with pytest.raises(UnsupportedError, match="power=1"):
            fit(sparse(), power=0.5)

    def test_unknown_method(self):
        with pytest.raises(ValueError, match="method must be one of 'ep', 'vb'; got 'mcmc'"):
            fit(gaussian(), "mcmc")


def test_variational_bayes_has_no_power():
    problem = next(iter(KINDS.values()))[0]()
    for pairs in ("auto", 20):
        with pytest.raises(UnsupportedError, match=r'power=0.5 is for method="ep"'):
            fit(problem, "vb", power=0.5, pairs=pairs)


@pytest.mark.filterwarnings("ignore::pymc_pacauc.results.ConvergenceWarning")  # such gammas are beyond EP,
@pytest.mark.filterwarnings("ignore::pymc_pacauc.results.TemperingWarning")  # and a hundred particles few
class TestUnderflow:
    """Numbers that underflow are zero, whatever NumPy is told to do about it elsewhere in a program."""

    @pytest.fixture(autouse=True)
    def raising(self):
        with np.errstate(under="raise"):
            yield

    @pytest.mark.parametrize("v0", [0.0, 1e-4])
    @pytest.mark.parametrize("gamma", [1e-3, 1e4])
    def test_spikes(self, v0, gamma):
        X, y = underflowing()
        found = fit(spike_slab_problem(X, y, gamma=gamma, inclusion_probability=0.1, v0=v0))
        rounding = 1e-12
        assert ((found.inclusion_probability >= 0.0) & (found.inclusion_probability <= 1.0 + rounding)).all()

    def test_tempering(self):
        X, y = underflowing()
        path = arrays.prior_path(linear_gaussian_problem(X, y, gamma=1e4))
        settings, rng = arrays.Settings(particles=100), np.random.default_rng(1)
        start = fit(linear_gaussian_problem(X, y, gamma=1e4)).posterior
        for each in (path, arrays.bridge_path(path, start.mean, start.covariance)):
            assert np.isfinite(arrays.run_tempering(each, settings, rng).log_evidence)

    def test_kernels(self):
        X, _ = underflowing()
        features = arrays.kernel_features(1e3 * X, lengthscale=1.0)
        assert np.isfinite(features.transform(1e3 * X)).all()

    def test_densities_and_weights(self):
        X, y = underflowing()
        found = _smoothed(X, X[:, 0], bipartite(y), 1e-8 * np.eye(4))
        assert np.isfinite(found.share).all()
        far = [SimpleNamespace(gamma=10.0**k, auc=np.full((5, 2), 0.9), reliable=True) for k in (0, 30)]
        assert weighted_gamma(far, 1.0) == pytest.approx(1.0)
        assert _log_sum(np.array([0.0, -1e3])) == 0.0
        softmax = fit_softmax(1e3 * X[:, :3], np.digitize(X[:, 0], [-0.5, 0.5]), None)
        assert np.isfinite(softmax.matrix).all()


def underflowing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    return X, X[:, 0] + rng.normal(size=120) > 0.2


def test_fits_along_start_from_the_last_that_converged(monkeypatch):
    starts = []

    def fake(problem, method, *, start, **options):
        starts.append(start)
        return SimpleNamespace(place=problem, converged=problem != "second")

    monkeypatch.setattr(fitting, "fit", fake)
    found = list(fits_along(["first", "second", "third"]))
    assert [each.place for each in found] == ["first", "second", "third"]
    assert starts == [None, found[0], found[0]]

"""Models with hyper-parameters that are integrated over: read from PyMC, fitted, predicted, sampled."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_pacauc as pac
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.nested import NestedApproximation, read_model
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.tempering import Settings, run_tempering
from pymc_pacauc.tune.nested import Density, flat_directions
from tests.oracles import exact_plane, plane_data
from tests.tune.test_nested import half_normal

pytestmark = pytest.mark.usefixtures("quick_compilation")

GROUPS = np.repeat(np.arange(5), 8)
rng = np.random.default_rng(4)
X = rng.normal(size=(GROUPS.size, 2))
Y = (X * (np.array([1.0, -0.5]) + 0.5 * rng.normal(size=(5, 2)))[GROUPS]).sum(axis=1) + rng.logistic(size=len(X)) > 0


def hierarchy(centred, *, spread=None, gamma=20.0):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0) if spread is None else spread
        mu = pm.Normal("mu", shape=2)
        if centred:
            theta = pm.Normal("theta", mu, s, shape=(5, 2))
        else:
            theta = pm.Deterministic("theta", mu + s * pm.Normal("z", shape=(5, 2)))
        pac.AUCPotential("auc", (X * theta[GROUPS]).sum(axis=1), Y, gamma)
    return model


def fitted(model, **options):
    with model:
        return pm.fit(method=pac.EP(**options), progressbar=False)


def test_a_centred_hierarchy_is_the_non_centred_one():
    centred, not_centred = fitted(hierarchy(True)), fitted(hierarchy(False))
    assert isinstance(centred, NestedApproximation)
    assert centred.log_evidence == pytest.approx(not_centred.log_evidence, abs=1e-6)
    np.testing.assert_allclose(
        centred.hyper_posterior["weight"], not_centred.hyper_posterior["weight"], rtol=1e-4, atol=1e-8
    )
    drawn = [each.sample(3000, random_seed=1)["posterior"]["theta"] for each in (centred, not_centred)]
    sd = drawn[0].std(("chain", "draw"))
    assert float(np.abs((drawn[0] - drawn[1]).mean(("chain", "draw")) / sd).max()) < 0.12
    assert float(np.abs(drawn[1].std(("chain", "draw")) / sd - 1.0).max()) < 0.12
    theta = centred.posterior.score_mean[centred.source.parts["theta"]].reshape(5, 2)
    scores = (X * theta[GROUPS]).sum(axis=1)
    assert centred.training_auc == pytest.approx(1.0 - pac.empirical_risk(scores, Y))
    assert not_centred.training_auc == pytest.approx(centred.training_auc, abs=1e-9)


def test_given_its_hyper_parameters_a_mixture_is_a_plain_fit():
    found = fitted(hierarchy(False))
    heaviest = int(np.argmax(found.nested.weights))
    s = float(found.hyper_posterior["s"][heaviest])
    plain = fitted(hierarchy(False, spread=s))
    assert float(found.hyper_posterior["log_evidence"][heaviest]) == pytest.approx(plain.log_evidence, abs=2e-3)
    np.testing.assert_allclose(found.nested.fits[heaviest].posterior.mean, problem_order(found, plain), atol=0.02)


def problem_order(found, plain):
    """The mean of a plain fit in the order that the fits of a mixture have their variables."""
    inner = found.hyper.source_at(found.nested.phi[0])
    return np.concatenate([plain.posterior.mean[plain.source.parts[name]] for name in inner.names])


def test_results_of_a_mixture():
    model = hierarchy(True)
    found = fitted(model)
    idata = found.sample(500, random_seed=1)
    assert set(idata["posterior"].data_vars) >= {"s", "mu", "theta"}
    table = pac.summary(found)
    assert "s" in table.index
    assert table.attrs["log_evidence"] == found.evidence.estimate
    certified = pac.certificate(found)
    assert certified.auc < certified.empirical_auc
    assert any("fixed by their prior alone" in sentence for sentence in certified.assumptions)
    assert found.leave_out(np.arange(len(Y)) % 4, progressbar=False).auc < 1.0
    assert "integrated over s" in repr(found)
    maximised = fitted(model, hyper="maximize")
    assert maximised.nested.weights.size == 1
    with pytest.raises(ValueError, match="tuned on these data"):
        pac.certificate(maximised)
    with pytest.raises(ValueError, match="hyper must be"):
        pac.EP(hyper="sample")


def test_predictions_of_a_mixture():
    for centred in (True, False):
        with pm.Model():
            rows, group = pm.Data("rows", X), pm.Data("group", GROUPS)
            s, mu = pm.HalfNormal("s", 1.0), pm.Normal("mu", shape=2)
            if centred:
                theta = pm.Normal("theta", mu, s, shape=(5, 2))
            else:
                theta = mu + s * pm.Normal("z", shape=(5, 2))
            pac.AUCPotential("auc", (rows * theta[group]).sum(axis=1), Y, 20.0)
            found = pm.fit(method=pac.EP(), progressbar=False)
        new = {"rows": X, "group": GROUPS}
        mean = pac.predict_scores(found, new, summary=True, draws=200, random_seed=1)["mean"].values
        expected = found.nested.mean(lambda each: each.problem.X @ each.posterior.mean)
        np.testing.assert_allclose(mean, expected, atol=1e-10)


def test_a_global_scale_keeps_its_prior():
    """No ranking depends on a scale of all coefficients: its posterior is its prior, and log Z that given any value."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.7)
        theta = pm.Normal("theta", 0.0, s, shape=2)
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
    found = fitted(model)
    plain = linear_gaussian_problem(X, Y, 20.0)
    assert found.flat == ("s",)
    assert found.log_evidence == pytest.approx(pac.arrays.fit(plain).log_evidence, abs=0.01)
    hyper = found.hyper_posterior
    mean = float((hyper["s"] * hyper["weight"]).sum())
    sd = float(np.sqrt(((hyper["s"] - mean) ** 2 * hyper["weight"]).sum()))
    prior = stats.halfnorm(scale=0.7)
    assert mean == pytest.approx(prior.mean(), rel=0.02)
    assert sd == pytest.approx(prior.std(), rel=0.03)
    assert "the posterior is the prior" in repr(found)


def test_flat_directions_of_two_scales():
    def problem_at(phi):
        return linear_gaussian_problem(X, Y, 20.0, prior_covariance=np.exp(2.0 * phi))

    flat, free = flat_directions(problem_at, np.array([0.1, -0.4]))
    np.testing.assert_allclose(np.abs(flat[0]), np.sqrt(0.5))
    np.testing.assert_allclose(np.abs(free[:, 0] @ flat[0]), 0.0, atol=1e-6)


def test_a_gaussian_likelihood_is_absorbed():
    """Exactly: the mean and log density of Gaussian conditioning, against SciPy; and the same by its own prior."""
    observed = np.array([0.4, -0.2, 0.9])
    design = np.array([[1.0, 0.0], [0.5, 1.0], [1.0, -1.0]])
    with pm.Model() as model:
        theta = pm.Normal("theta", [0.2, -0.1], [1.0, 2.0])
        pm.Normal("calibration", design @ theta, 0.5, observed=observed)
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
    problem = problem_of(model).problem
    prior = np.diag([1.0, 4.0])
    spread = design @ prior @ design.T + 0.25 * np.eye(3)
    gain = prior @ design.T @ np.linalg.inv(spread)
    residual = observed - design @ [0.2, -0.1]
    np.testing.assert_allclose(problem.prior.mean, [0.2, -0.1] + gain @ residual)
    np.testing.assert_allclose(problem.prior.covariance, prior - gain @ design @ prior)
    exact = stats.multivariate_normal(cov=spread).logpdf(residual)
    assert problem.absorbed == pytest.approx(exact)
    found = fitted(model)
    written = linear_gaussian_problem(
        X, Y, 20.0, prior_mean=problem.prior.mean, prior_covariance=problem.prior.covariance
    )
    assert found.log_evidence == pytest.approx(pac.arrays.fit(written).log_evidence + exact, abs=1e-6)
    with model:
        idata = pm.sample(
            300, step=pac.TemperingSMC(particles=300), chains=2, cores=1, random_seed=1, progressbar=False
        )
    evidence = pac.log_evidence(idata)
    assert evidence.estimate == pytest.approx(found.log_evidence, abs=0.3 + 3.0 * evidence.standard_error)
    with pytest.raises(ValueError, match="likelihood or a potential besides"):
        pac.certificate(found)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: pm.HalfFlat("s"), "improper"),
        (lambda: 1.0 + pm.Poisson("s", 2.0), "discrete"),
        (lambda: pm.HalfNormal("s", 1.0, shape=7)[:, None].sum(), "7 hyper-parameters .s., and at most 6"),
    ],
)
def test_hyper_parameters_that_are_refused(write, message):
    with pm.Model():
        theta = pm.Normal("theta", 0.0, write(), shape=2)
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
        with pytest.raises(pac.results.NotLinearGaussianError, match=message):
            pm.fit(method=pac.EP(), progressbar=False)


def test_other_likelihoods_are_sampled_instead():
    with pm.Model():
        theta = pm.Normal("theta", shape=2)
        pm.Bernoulli("label", logit_p=X @ theta, observed=Y.astype(int))
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
        with pytest.raises(pac.results.NotLinearGaussianError, match=r"not Gaussian .label.*TemperingSMC"):
            pm.fit(method=pac.EP(), progressbar=False)


@pytest.mark.parametrize("how", ["log scale", "correlated", "noise"])
def test_forms_of_hyper_parameters(how):
    with pm.Model() as model:
        if how == "log scale":
            scale = pm.math.exp(pm.Normal("log_s", -0.5, 0.5))
            theta = pm.Normal("mu", shape=2) + scale * pm.Normal("z", shape=(5, 2))
        elif how == "correlated":
            factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0), compute_corr=True)
            theta = pm.MvNormal("theta", pm.Normal("mu", shape=2), chol=factor, shape=(5, 2))
        else:
            theta = pm.Normal("theta", shape=(5, 2))
            pm.Normal("level", theta.sum(axis=1), pm.HalfNormal("noise", 1.0), observed=np.ones(5))
        pac.AUCPotential("auc", (X * theta[GROUPS]).sum(axis=1), Y, 10.0)
    hyper = read_model(model)
    assert [rv.name for rv in hyper.hyper] == [{"log scale": "log_s", "correlated": "factor", "noise": "noise"}[how]]
    problem = hyper.conditional.problem_at(hyper.conditional.centre)
    assert problem.d == {"log scale": 12, "correlated": 12, "noise": 10}[how]
    assert np.isfinite(Density(hyper.conditional).at(hyper.conditional.centre).log_density)


def test_inclusion_probabilities_with_a_learned_weight():
    with pm.Model() as model:
        p = pm.Beta("p", 1.0, 2.0)
        theta = pac.SpikeSlab("theta", p=p, shape=3)
        rows = np.column_stack([X, X[:, 0] - X[:, 1] ** 2])
        pac.AUCPotential("auc", rows @ theta, Y, 30.0)
    found = fitted(model)
    assert found.inclusion_probability.shape == (3,)
    assert ((found.inclusion_probability >= 0) & (found.inclusion_probability <= 1)).all()
    drawn = found.sample(1000, random_seed=1)["posterior"]
    included = drawn["theta_included"].values
    np.testing.assert_array_equal(drawn["theta"].values != 0.0, included == 1)
    np.testing.assert_allclose(included.mean(axis=(0, 1)), found.inclusion_probability, atol=0.06)


def ratio_model(rows, labels, centred=True):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        first = pm.Normal("first")
        second = pm.Normal("second", 0.0, s) if centred else s * pm.Normal("z")
        pac.AUCPotential("auc", rows[:, 0] * first + rows[:, 1] * second, labels, 30.0)
    return model


def test_a_centred_hierarchy_is_sampled_as_the_non_centred_one():
    rows, labels = plane_data(n=40)
    settings = Settings(particles=100)
    found = []
    for centred in (True, False):
        path = PyMCPath(ratio_model(rows, labels, centred))
        state = run_tempering(path, settings, np.random.default_rng(1))
        theta, risk = path.finish(state.population, np.random.default_rng(2))
        np.testing.assert_allclose(path.x_of(theta), state.population.x, atol=1e-9)
        np.testing.assert_allclose(path.scores(theta).shape, (100, 40))
        found.append((state.log_evidence, theta[:, 0], risk))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.slow
def test_the_funnel_of_a_scale_near_zero_is_sampled_exactly():
    """Over 200 runs the share of draws with a scale below small quantiles is that of quadrature, and Z is unbiased."""
    rows, labels = plane_data(n=40)
    grid = np.linspace(-12.0, 2.0, 561)
    logs = np.array([exact_plane(rows * [1.0, np.exp(x)], labels, 30.0).log_evidence for x in grid])
    density = np.exp(logs + half_normal(grid[:, None]))
    log_z = np.log(density.sum() * (grid[1] - grid[0]))
    below = np.cumsum(density) / density.sum()
    limits = np.interp([0.01, 0.05, 0.2, 0.5], below, grid)
    path, settings = PyMCPath(ratio_model(rows, labels)), Settings(particles=200)
    shares, ratios = [], []
    for run in np.random.default_rng(8).spawn(200):
        state = run_tempering(path, settings, run)
        log_s = path.finish(state.population, None)[0][:, 0]
        shares.append([(log_s < limit).mean() for limit in limits])
        ratios.append(np.exp(state.log_evidence - log_z))
    for sample, exact in ((np.array(shares), [0.01, 0.05, 0.2, 0.5]), (np.array(ratios)[:, None], [1.0])):
        error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
        assert (np.abs(sample.mean(axis=0) - exact) < 3.5 * error + 1e-3 * np.array(exact)).all()


@pytest.mark.parametrize("kind", [pytest.param("laplace", marks=pytest.mark.slow), "horseshoe"])
def test_other_priors_given_a_learned_scale(kind):
    """Laplace coefficients, and a horseshoe: local scales by the prior's sites, the common one integrated over."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        if kind == "laplace":
            theta = pm.Laplace("theta", 0.0, tau, shape=2)
        else:
            theta = pm.Normal("theta", 0.0, tau * pm.HalfCauchy("local", 1.0, shape=2), shape=2)
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
    found = fitted(model)
    assert [rv.name for rv in found.hyper.hyper] == ["tau"]
    hyper = found.hyper_posterior
    assert float((hyper["tau"] * hyper["weight"]).sum()) == pytest.approx(np.sqrt(2.0 / np.pi), rel=0.03)
    drawn = found.sample(200, random_seed=1)["posterior"]
    np.testing.assert_allclose(drawn["theta"].shape, (1, 200, 2))


def test_a_process_with_a_learned_lengthscale_predicts_new_points():
    """At its own points, given one of its lengthscales, a process predicts the scores that it has there."""
    x = np.linspace(0.0, 4.0, 30)[:, None]
    labels = np.sin(2.0 * x[:, 0]) + 0.5 * rng.normal(size=30) > 0
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, pm.InverseGamma("lengthscale", 3.0, 3.0)))
        pac.AUCPotential("auc", gp.prior("f", X=x), labels, 15.0)
    found = fitted(model)
    own = pac.predict_scores(found, x, gp=gp, summary=True, draws=300, random_seed=1)
    expected = found.nested.mean(lambda each: each.problem.X @ each.posterior.mean)
    np.testing.assert_allclose(own["mean"] - own["mean"].mean(), expected - expected.mean(), atol=0.02)
    far = pac.predict_scores(found, np.array([[400.0]]), gp=gp, summary=True, draws=300, random_seed=1)
    assert float(far["mean"][0]) == pytest.approx(0.0, abs=1e-6)
    assert float(far["sd"][0]) == pytest.approx(1.0, abs=0.15)  # the prior's


@pytest.fixture(scope="module")
def weighted_prior():
    """The exact posterior of the hierarchy: draws of its prior, log s first, with weights; and the evidence."""
    rng = np.random.default_rng(8)
    s = np.abs(rng.standard_normal(60_000))
    theta = rng.standard_normal((len(s), 1, 2)) + s[:, None, None] * rng.standard_normal((len(s), 5, 2))
    scores = np.einsum("nj,snj->sn", X, theta[:, GROUPS])
    weights = np.exp(-20.0 * pac.empirical_risk(scores, Y))
    return np.log(s), theta.reshape(len(s), 10), weights / weights.sum(), float(np.log(weights.mean()))


def test_weights_correct_the_evidence(weighted_prior):
    found = fitted(hierarchy(True))
    assert found.evidence.standard_error < 0.03
    assert found.evidence.estimate == pytest.approx(weighted_prior[3], abs=0.03 + 3.0 * found.evidence.standard_error)
    sample = found.importance_sample(4000, random_seed=1)
    assert sample.log_evidence == pytest.approx(weighted_prior[3], abs=0.03 + 3.0 * sample.log_evidence_se)
    weights = np.exp(sample.idata["sample_stats"]["log_weight"].values[0])
    theta = sample.idata["posterior"]["theta"].values[0].reshape(-1, 10)
    mean = weighted_prior[2] @ weighted_prior[1]
    sd = np.sqrt(weighted_prior[2] @ (weighted_prior[1] - mean) ** 2)
    np.testing.assert_allclose(weights @ theta / weights.sum(), mean, atol=0.1 * sd.min())


def test_an_absorbed_likelihood_counts_in_every_evidence():
    with pm.Model():
        theta = pm.Normal("theta", shape=2)
        pm.Normal("other", X[:4] @ theta, 1.0, observed=np.ones(4))
        pac.AUCPotential("auc", X @ theta, Y, 20.0)
        found = pm.fit(method=pac.EP(), progressbar=False)
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((100_000, 2))
    log_weights = stats.norm.logpdf(theta @ X[:4].T, 1.0).sum(axis=1) - 20.0 * pac.arrays.linear_risk(theta, X, Y)
    exact = np.log(np.exp(log_weights).mean())
    assert found.evidence.estimate == pytest.approx(exact, abs=0.03)
    assert found.importance_sample(2000, random_seed=1).log_evidence == pytest.approx(exact, abs=0.05)
    assert found.log_evidence == pytest.approx(exact, abs=0.4)


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (lambda: pm.HalfNormal("s", np.nan), "cannot be drawn from"),
        (lambda: pm.InverseGamma("s", 0.001, 0.001), "float division by zero"),
        (lambda: pm.Normal("s", -5.0, 0.1), "not Gaussian"),
    ],
)
def test_scales_that_no_prior_draw_survives_are_refused(scale, reason):
    with pm.Model():
        theta = pm.Normal("theta", pm.Normal("mu", shape=2), scale(), shape=(5, 2))
        pac.AUCPotential("auc", (X * theta[GROUPS]).sum(axis=1), Y, 20.0)
        with pytest.raises(pac.results.NotLinearGaussianError, match=reason):
            pm.fit(method=pac.EP(), progressbar=False)


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "begun"), [(200, "prior"), (100, "mixture")])
def test_small_runs_have_the_exact_funnel_and_evidence(runs, begun, weighted_prior):
    """Averages over runs of 100 particles, each weighted by its evidence, which is unbiased: no tail is lost."""
    model = hierarchy(True)
    path = PyMCPath(model)
    if begun == "mixture":
        path = path.bridge_from(fitted(model)._draw(2000, np.random.default_rng(0))[0])
    part = path.variables.slices[list(path.variables.names).index("s_log__")] if begun == "prior" else None
    values, log_z = [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        state = run_tempering(path, Settings(particles=100), rng)
        theta, _ = path.finish(state.population, rng)
        log_s = theta[:, 0 if part is None else part].reshape(len(theta), -1)[:, 0]
        values.append([(log_s < np.log(0.02)).mean(), (log_s < np.log(0.1)).mean(), log_s.mean()])
        log_z.append(state.stages[-1].log_evidence)
    relative = np.exp(np.array(log_z) - weighted_prior[3])
    error = relative.std(ddof=1) / np.sqrt(runs)
    assert relative.mean() == pytest.approx(1.0, abs=3.0 * np.hypot(error, 0.01))
    log_s, _, weights, _ = weighted_prior
    exact = np.array([weights @ (log_s < np.log(0.02)), weights @ (log_s < np.log(0.1)), weights @ log_s])
    found = relative @ np.array(values) / relative.sum()
    spread = np.sqrt(relative**2 @ (np.array(values) - found) ** 2) / relative.sum()
    assert (np.abs(found - exact) < 3.5 * np.hypot(spread, [0.001, 0.002, 0.01])).all()

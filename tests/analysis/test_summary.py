import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.model.results import as_result
from tests.oracles import exact_plane

pytestmark = pytest.mark.filterwarnings(
    "ignore:Passing a dict or None as alias_mapping",  # ArviZ 0.23 with matplotlib 3.11
    "ignore:.*set_ticklabels.*:UserWarning",
)

rng = np.random.default_rng(2)
X = rng.normal(size=(60, 3))
y = X[:, 0] + rng.normal(size=60) > 0


@pytest.fixture(scope="module")
def fitted():
    with pm.Model(coords={"covariate": ["a", "b", "c"]}) as model:
        rows = pm.Data("X", X)
        theta = pm.Normal("theta", dims="covariate")
        scores = pm.Deterministic("scores", rows @ theta)
        pac.AUCPotential("auc", scores, y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        idata = pm.sample(500, step=pac.TemperingSMC(), chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    return model, approx, idata


def test_of_an_approximation(fitted):
    _, approx, _ = fitted
    summary = pac.summary(approx, ci_prob=0.8)
    assert list(summary.index) == ["theta[a]", "theta[b]", "theta[c]"]
    assert list(summary.columns) == ["mean", "sd", "10.0%", "90.0%", "P(> 0)"]
    np.testing.assert_allclose(summary["mean"], approx.posterior.mean, atol=5e-4)
    assert summary.attrs["certificate"].auc == pac.certificate(approx).auc
    assert summary.attrs["log_evidence"] == approx.evidence.estimate
    auc = 1 - pac.empirical_risk(X @ approx.q.mean, y)
    assert summary.attrs["auc"] == pytest.approx(auc)
    lines = summary.attrs["report"].splitlines()
    assert lines[1] == f"  AUC            {auc:.4f} of the mean score, the one to deploy (training rows)"
    assert lines[2].startswith(f"  AUC of a draw  {1 - approx.expected_risk:.4f}")
    assert lines[4].startswith("  certified AUC")
    with pytest.raises(ValueError, match="ci_prob"):
        pac.summary(approx, ci_prob=2.0)


def test_of_draws(fitted):
    model, approx, idata = fitted
    drawn = pac.summary(approx.sample(200, random_seed=1))
    assert drawn.attrs["method"] == "EP"
    draws = approx.sample(200, random_seed=1)["posterior"]["theta"].values[0]
    for ci_prob in (0.9, 0.5):  # ArviZ's intervals, the shortest (0.x) or the central ones (1.x)
        chosen = {} if ci_prob == 0.9 else {"ci_prob": ci_prob}
        lower, upper = pac.summary(approx.sample(200, random_seed=1), **chosen).iloc[:3, 2:4].to_numpy(float).T
        inside = ((draws >= lower - 1e-3) & (draws <= upper + 1e-3)).mean(axis=0)
        np.testing.assert_allclose(inside, ci_prob, atol=0.02)
    assert drawn.attrs["expected_auc"] == pytest.approx(1 - approx.expected_risk)
    sampled = pac.summary(idata, model=model)
    assert sampled.attrs["method"] == "TemperingSMC"
    mean = X @ idata["posterior"]["theta"].values.mean(axis=(0, 1))
    assert sampled.attrs["auc"] == pytest.approx(1 - pac.empirical_risk(mean, y))
    assert drawn.attrs["auc"] == pac.summary(approx).attrs["auc"]  # it travels with the draws
    alone = pac.summary(idata)  # without the model the training rows are not known
    assert np.isnan(alone.attrs["auc"])
    assert "the one to deploy: pass model=" in alone.attrs["report"]
    assert sampled.attrs["log_evidence"] == pytest.approx(approx.log_evidence, abs=0.5)
    assert sampled.attrs["log_evidence_se"] > 0
    for summary in (drawn, sampled):
        assert [row for row in summary.index if row.startswith("theta")] == ["theta[a]", "theta[b]", "theta[c]"]
        assert "scores" in summary.attrs["note"]
        assert not any(row.startswith("scores") for row in summary.index)
        assert summary.attrs["certificate"] is not None
    named = pac.summary(idata, model=model, var_names=["theta"])
    assert len(named) == 3


def test_of_anything_else():
    with pytest.raises(TypeError, match="result must come from"):
        pac.summary([1, 2, 3])


def test_groups(fitted):
    _, approx, idata = fitted
    for data, method in ((approx.sample(50), "EP"), (idata, "TemperingSMC")):
        assert as_result(data).fitted_to.method == method
        assert as_result(data).fitted_to.gamma == 30.0
        assert "risk" in data["sample_stats"]
        np.testing.assert_array_equal(data["constant_data"]["X"], X)
        assert data["posterior"]["theta"].dims == ("chain", "draw", "covariate")
    np.testing.assert_array_equal(approx.sample(50)["observed_data"]["labels"], y)
    assert {"pacauc_version", "pymc_version", "pacauc_method"} <= set(approx.sample(5)["posterior"].attrs)


def test_arviz_takes_it_unchanged(fitted):
    import matplotlib as mpl

    mpl.use("Agg")
    _, approx, idata = fitted
    for data in (approx.sample(100, random_seed=1), idata):
        assert len(az.summary(data, var_names=["theta"])) == 3
        az.plot_trace(data, var_names=["theta"])
        az.plot_forest(data, var_names=["theta"])
        az.plot_pair(data, var_names=["theta"])
    import matplotlib.pyplot as plt

    plt.close("all")


def test_other_comparisons_are_called_what_they_are():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 2))
    signal = X[:, 0] + rng.normal(size=50)
    classes = np.digitize(signal, [-0.5, 0.5])
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("o", X @ theta, classes, 20.0, ordered=True)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    attrs = pac.summary(approx).attrs
    assert attrs["report"].startswith("Concordance Gibbs posterior by EP")
    assert "\n  concordance of a draw  " in attrs["report"]
    assert attrs["auc"] == pytest.approx(1 - pac.empirical_risk(X @ approx.q.mean, classes, ordered=True))
    assert "a concordance Gibbs posterior" in repr(approx)
    assert repr(attrs["certificate"]).startswith("Certified concordance >= ")
    with pytest.raises(ValueError, match=r"y has 3 distinct values; ROC.*ordered=True.*concordance_risk"):
        pac.roc(X @ approx.posterior.mean, classes)


def test_partial_auc_of_the_mean_score():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 2))
    y = X[:, 0] + rng.normal(size=50) > 0
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("p", X @ theta, y, 20.0, max_fpr=0.3)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(100, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    attrs = pac.summary(idata, model=model).attrs
    mean = idata["posterior"]["theta"].values.mean(axis=(0, 1))
    assert attrs["auc"] == pytest.approx(1 - pac.empirical_risk(X @ mean, y, max_fpr=0.3))
    assert attrs["report"].startswith("Partial AUC Gibbs posterior by TemperingSMC")
    assert "no certificate for a partial AUC" in attrs["note"]


def test_signs_and_intervals_are_the_posteriors():
    """Against the exact angle of two coefficients and its length: the posterior is skewed, and no Gaussian tells."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    y = X @ [1.0, 0.4] + rng.logistic(size=80) > 0.0
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=15.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    exact = exact_plane(X, y, 15.0)
    cells = rng.choice(exact.mass.size, size=400_000, p=exact.mass)
    angle = rng.uniform(exact.edges[:-1][cells], exact.edges[1:][cells])
    drawn = np.sqrt(rng.chisquare(2, angle.size))[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    table = pac.summary(approx, ci_prob=0.9)
    np.testing.assert_allclose(table["P(> 0)"], (drawn > 0.0).mean(axis=0), atol=0.012)
    sd = drawn.std(axis=0)
    np.testing.assert_allclose(table["5.0%"] / sd, np.quantile(drawn, 0.05, axis=0) / sd, atol=0.06)
    np.testing.assert_allclose(table["95.0%"] / sd, np.quantile(drawn, 0.95, axis=0) / sd, atol=0.06)

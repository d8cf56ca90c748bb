import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac

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
    assert list(summary.table.index) == ["theta[a]", "theta[b]", "theta[c]"]
    assert list(summary.table.columns) == ["mean", "sd", "10.0%", "90.0%", "P(> 0)"]
    np.testing.assert_allclose(summary.table["mean"], approx.posterior.mean, atol=5e-4)
    assert summary.certificate.auc == pac.certificate(approx).auc
    assert summary.log_evidence == approx.log_evidence
    assert "certified AUC" in repr(summary)
    with pytest.raises(ValueError, match="ci_prob"):
        pac.summary(approx, ci_prob=2.0)


def test_of_draws(fitted):
    model, approx, idata = fitted
    drawn = pac.summary(approx.sample(200, random_seed=1))
    assert drawn.method == "EP"
    assert drawn.expected_auc == pytest.approx(1 - approx.expected_risk)
    sampled = pac.summary(idata, model=model)
    assert sampled.method == "TemperingSMC"
    assert sampled.log_evidence == pytest.approx(approx.log_evidence, abs=0.5)
    assert sampled.log_evidence_se > 0
    for summary in (drawn, sampled):
        assert [row for row in summary.table.index if row.startswith("theta")] == ["theta[a]", "theta[b]", "theta[c]"]
        assert "scores" in summary.note
        assert not any(row.startswith("scores") for row in summary.table.index)
        assert summary.certificate is not None
    named = pac.summary(idata, model=model, var_names=["theta"])
    assert len(named.table) == 3


def test_of_anything_else():
    with pytest.raises(TypeError, match="approximation or an idata"):
        pac.summary([1, 2, 3])


def test_groups_and_attributes(fitted):
    model, approx, idata = fitted
    pac.annotate(idata, model)
    for data, method in ((approx.sample(50), "EP"), (idata, "TemperingSMC")):
        attrs = data["posterior"].attrs
        assert attrs["pacauc_method"] == method
        assert attrs["pacauc_gamma"] == 30.0
        assert {"pacauc_version", "pacauc_pymc_version", "pacauc_log_evidence", "pacauc_n_pos"} <= set(attrs)
        assert "risk" in data["sample_stats"]
        np.testing.assert_array_equal(data["constant_data"]["X"], X)
        np.testing.assert_array_equal(data["observed_data"]["labels"], y)
        assert data["posterior"]["theta"].dims == ("chain", "draw", "covariate")


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

"""Every kind of result, by every function of the analysis: each cell works, or refuses in the same words."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_pacauc as pac
from pymc_pacauc.estimator.base import inference_data_of
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.results import as_result

rng = np.random.default_rng(12)
X = rng.normal(size=(60, 3))
y = X[:, 0] + rng.normal(size=60) > 0.2
NEW = rng.normal(size=(5, 3))
MANY = rng.normal(size=(300, 3))  # enough for a subsample of the pairs
MANY_Y = MANY[:, 0] + rng.normal(size=300) > 0.2
QUIET = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}


def linear(X=X, y=y):
    with pm.Model(coords={"covariate": list("abc")}) as model:
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
    return model, None


def sparse(v0):
    with pm.Model(coords={"covariate": list("abc")}) as model:
        theta = pac.SpikeSlab("theta", p=0.4, v0=v0, dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
    return model, None


def process():
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0))
        pac.AUCPotential("auc", gp.prior("f", X=X), y, gamma=30.0)
    return model, gp


def kernel():
    features = pac.kernel_features(X, lengthscale=2.0, rank=20)
    with pm.Model() as model:
        theta = pm.Normal("theta", shape=features.rank)
        pac.AUCPotential("auc", features(pm.Data("X", X)) @ theta, y, gamma=30.0)
    return model, None


MODELS = {
    "linear": linear,
    "many rows": lambda: linear(MANY, MANY_Y),
    "mixture": lambda: sparse(0.02),
    "point mass": lambda: sparse(0.0),
    "process": process,
    "kernel": kernel,
}
RESULTS = {
    "EP": ("linear", "ep"),
    "VB": ("linear", "vb"),
    "SMC": ("linear", "smc"),
    "SpikeSlab by EP": ("point mass", "ep"),
    "mixture by EP": ("mixture", "ep"),
    "SpikeSlab by SMC": ("point mass", "smc"),
    "GP by EP": ("process", "ep"),
    "GP by SMC": ("process", "smc"),
    "kernel features by EP": ("kernel", "ep"),
    "kernel features by SMC": ("kernel", "smc"),
    "subsample by EP": ("many rows", "subsample"),
}


METHODS = {"ep": pac.EP, "vb": pac.GaussianVB, "subsample": lambda: pac.EP(pairs=60)}


@pytest.fixture(scope="module")
def results():
    made, found = {name: build() for name, build in MODELS.items()}, {}
    for name, (kind, method) in RESULTS.items():
        model, gp = made[kind]
        with model:
            if method == "smc":
                result = pm.sample(100, step=pac.TemperingSMC(particles=200), **QUIET)
            else:
                result = pm.fit(method=METHODS[method](), progressbar=False)
        found[name] = (result, model, gp)
    assert found["subsample by EP"][0].pairs_used < MANY_Y.sum() * (~MANY_Y).sum()
    return found


NO_CLOSED_FORM = "has no closed form: certify the exact posterior, sampled by pm.sample"
NO_SITES = "rows are left out of an approximation, not of draws"


@pytest.mark.parametrize("name", RESULTS)
def test_certificate(results, name):
    result, _, _ = results[name]
    if name in ("SpikeSlab by EP", "mixture by EP"):
        with pytest.raises(ValueError, match=NO_CLOSED_FORM):
            pac.certificate(result)
        return
    certified = pac.certificate(result)
    assert 0.0 < certified.auc < certified.empirical_auc < 1.0
    labels = MANY_Y if RESULTS[name][0] == "many rows" else y
    assert (certified.n_pos, certified.n_neg) == (int(labels.sum()), int((~labels).sum()))


@pytest.mark.parametrize("name", RESULTS)
def test_leave_out(results, name):
    result, _, _ = results[name]
    if "SMC" in name:
        with pytest.raises(TypeError, match=NO_SITES):
            pac.leave_out(result)
        return
    rows = len(MANY) if RESULTS[name][0] == "many rows" else len(X)
    left = pac.leave_out(result, groups=np.arange(rows) % 4, progressbar=False)
    assert left.group_auc.shape == (4,)
    assert 0.5 < left.auc < 1.0


@pytest.mark.parametrize("name", RESULTS)
def test_predict(results, name):
    result, model, gp = results[name]
    scores = pac.predict_scores(result, NEW, gp=gp, model=model, random_seed=1)
    summary = pac.predict_scores(result, NEW, gp=gp, model=model, summary=True)
    assert scores.dims == ("chain", "draw", "row")
    assert scores.shape[-1] == 5
    error = 5 * summary["sd"].max().item() / np.sqrt(scores[..., 0].size)
    deployed, average = summary["mean"].values, scores.mean(("chain", "draw")).values
    if "EP" in name:  # what is deployed is q's mean, as certified; draws have the exact length, which ranks nothing
        average = average * (deployed @ average) / (average @ average)
    np.testing.assert_allclose(deployed, average, atol=error)
    above = pac.predict_scores(result, NEW[0], versus=NEW[1], gp=gp, model=model, summary=True, random_seed=1)
    below = pac.predict_scores(result, NEW[1], versus=NEW[:1], gp=gp, model=model, summary=True, random_seed=1)
    assert 0.0 <= above["probability_above"] <= 1.0
    np.testing.assert_allclose(above["probability_above"], 1 - below["probability_above"], atol=0.15)
    np.testing.assert_allclose(above["mean"], -below["mean"], atol=2 * error)
    assert pac.summary(scores)["rank"].sum() == pytest.approx(15)


@pytest.mark.parametrize("name", RESULTS)
def test_summary(results, name):
    result, _, _ = results[name]
    table = pac.summary(result)
    assert len(table) >= 1
    assert table.attrs["method"] == as_result(result).fitted_to.method
    assert table.attrs["expected_auc"] == pytest.approx(1 - as_result(result).mean_risk.value)
    assert ("certified AUC" in table.attrs["report"]) == (table.attrs["certificate"] is not None)
    if name in ("SpikeSlab by EP", "mixture by EP"):
        assert NO_CLOSED_FORM in table.attrs["note"]
    if "SpikeSlab" in name:
        assert table["inclusion"].iloc[:3].between(0, 1).all()
        assert table["inclusion"].iloc[0] > table["inclusion"].iloc[2]


@pytest.mark.parametrize("name", RESULTS)
def test_select_gamma(results, name):
    _, model, _ = results[name]
    method = RESULTS[name][1].replace("subsample", "ep")
    found = pac.select_gamma(model, [5.0, 30.0], folds=2, method=method, random_seed=1, progressbar=False)
    assert found.best in (5.0, 30.0)
    assert as_result(found).fitted_to.gamma == found.best


@pytest.mark.parametrize("name", RESULTS)
def test_start(results, name):
    """A result can be where sampling starts, or says that it cannot."""
    result, model, _ = results[name]
    with model:
        if "SMC" in name:
            with pytest.raises(TypeError, match=r"start must be what pm\.fit"):
                pac.TemperingSMC(start=result)
        elif name == "SpikeSlab by EP":
            with pytest.raises(TypeError, match="point mass at zero"):
                pac.TemperingSMC(start=result)
        else:
            idata = pm.sample(50, step=pac.TemperingSMC(start=result, particles=200), **QUIET)
            evidence = pac.log_evidence(idata)
            assert abs(evidence.estimate - result.log_evidence) < 1.0 + 5 * evidence.standard_error


@pytest.mark.filterwarnings("ignore:invalid value encountered in scalar divide")  # ArviZ, of a constant indicator
@pytest.mark.parametrize("name", RESULTS)
def test_save_and_reload(results, name, tmp_path):
    pytest.importorskip("h5py")
    result, model, gp = results[name]
    draws = result if "SMC" in name else result.sample(40, random_seed=1)
    draws.to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc")
    assert as_result(read).fitted_to == as_result(result).fitted_to
    assert as_result(read).mean_risk == as_result(draws).mean_risk
    before, after = (pac.predict_scores(d, NEW, gp=gp, model=model, random_seed=1) for d in (draws, read))
    np.testing.assert_allclose(before, after)
    if name.startswith("kernel"):
        with pytest.raises(ValueError, match="pass model="):
            pac.predict_scores(read, NEW)
    elif gp is None:
        np.testing.assert_allclose(pac.predict_scores(read, NEW), before)
    assert len(az.summary(read, var_names=["f" if gp else "theta"])) >= 3
    if name not in ("SpikeSlab by EP", "mixture by EP"):
        assert pac.certificate(read) == pac.certificate(draws)
    if "SpikeSlab" in name:
        assert len(az.summary(read, var_names=["theta_included"])) == 3
        counted = pac.inclusion_probability(read)
        exact = pac.inclusion_probability(read, model=model)
        xr.testing.assert_allclose(counted, exact, atol=0.25)
        assert len(pac.plots.plot_inclusion(read).get_yticks()) == 3


ESTIMATORS = {
    "EP": {"prior": "ridge"},
    "VB": {"prior": "ridge", "method": "vb"},
    "SMC": {"prior": "ridge", "method": "smc"},
    "SpikeSlab by EP": {"prior": "spike_slab"},
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    """What they say themselves, the functions of the analysis say of their draws and approximations."""
    fitted = pac.AUCClassifier(gamma=30.0, **ESTIMATORS[name]).fit(X, y)
    draws = fitted.idata_
    if name == "SpikeSlab by EP":
        for result in (draws, fitted.approximation_):
            with pytest.raises(ValueError, match=NO_CLOSED_FORM):
                pac.certificate(result)
        with pytest.raises(AttributeError, match=NO_CLOSED_FORM):
            fitted.certificate_  # noqa: B018
    else:
        results = (draws,) if name == "SMC" else (draws, fitted.approximation_)
        assert [pac.certificate(each).auc for each in results] == pytest.approx(
            [fitted.certificate_.auc] * len(results)
        )
    assert pac.log_evidence(draws).estimate == pytest.approx(fitted.log_evidence_)
    assert as_result(draws).fitted_to.method == {"VB": "GaussianVB", "SMC": "TemperingSMC"}.get(name, "EP")


def test_estimators_that_chose_their_prior():
    """Among four: the estimator and its draws pay for it, the fit by itself does not know how much, and refuses."""
    fitted = pac.AUCClassifier(gamma=30.0).fit(X, y)
    charged = pac.certificate(fitted.approximation_, selected_from=4, tuned_prior="charge")
    for result in (fitted, fitted.idata_):
        assert pac.certificate(result).selected_from == 4
        assert pac.certificate(result).auc == pytest.approx(charged.auc)
        assert "The estimator took scales" in repr(pac.certificate(result))
    with pytest.raises(ValueError, match="tuned on these data"):
        pac.certificate(fitted.approximation_)


def test_estimators_on_a_subsample():
    """Their risk is an estimate, for which draws pay as the fit itself does."""
    posterior = pac.AUCClassifier(gamma=30.0, prior="ridge").fit(MANY, MANY_Y).scores_[0].posterior
    some = fit(posterior.fit.problem, pairs=60)
    assert some.pairs_used < posterior.fit.pairs_used
    draws = inference_data_of(replace(posterior, fit=some), ["a", "b", "c"], 50, 1)
    assert pac.certificate(draws).auc == pac.certificate(some).auc
    assert pac.certificate(draws).auc < pac.certificate(posterior.fit).auc

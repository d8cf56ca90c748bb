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
from tests.pair_lists import (
    censored_pairs,
    class_pairs,
    competing_pairs,
    horizon_pairs,
    label_pairs,
    listed_risk,
    under_observation,
)
from tests.reference_ep import reference_ep

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


NO_CLOSED_FORM = "has no closed form. Certify the exact posterior, sampled by pm.sample"
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
            with pytest.raises(TypeError, match=r"start must be the result of pm\.fit"):
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


# -- every kind of comparison, against lists of its pairs -----------------------------------------------------------

rows = np.random.default_rng(30)
Z = rows.normal(size=(36, 2))
SIGNAL = Z[:, 0] - 0.5 * Z[:, 1] + rows.logistic(size=36)
LABELS, LEVELS, STRATA = SIGNAL > 0, np.digitize(SIGNAL, [-1.0, 1.0]), np.arange(36) % 3
TIME, WEIGHTS = np.ceil(10 * np.exp(-SIGNAL)), rows.gamma(2.0, size=36)
CODES = rows.integers(0, 3, 36)
ENTRY, HORIZON = TIME * rows.random(36), float(np.median(TIME))
KINDS = {
    "two classes": ({"y": LABELS}, label_pairs(LABELS)),
    "strata": ({"y": LABELS, "strata": STRATA}, label_pairs(LABELS, strata=STRATA)),
    "weights": ({"y": LABELS, "weights": WEIGHTS}, label_pairs(LABELS, weights=WEIGHTS)),
    "ordered classes": ({"y": LEVELS, "ordered": True}, label_pairs(LEVELS)),
    "unordered classes": ({"y": LEVELS, "multi_class": "ovo"}, class_pairs(LEVELS)),
    "censored": ({"time": TIME, "event": CODES > 0}, censored_pairs(TIME, CODES > 0)),
    "competing": ({"time": TIME, "event": CODES, "cause": 2}, competing_pairs(TIME, CODES, 2)),
    "horizon": ({"time": TIME, "event": CODES, "horizon": HORIZON}, horizon_pairs(TIME, CODES, HORIZON)),
    "entry": (
        {"time": TIME, "event": CODES, "entry": ENTRY},
        under_observation(competing_pairs(TIME, CODES), TIME, ENTRY),
    ),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def design_of(kind):
    """Rows whose product with the coefficients are all scores, of classes one after the other."""
    return Z if kind != "unordered classes" else np.concatenate([np.kron(Z, unit) for unit in np.eye(3)])


@pytest.fixture(scope="module")
def kinds():
    found = {}
    for kind, (given, _) in KINDS.items():
        with pm.Model() as model:
            theta = pm.Normal("theta", shape=(2, 3) if kind == "unordered classes" else 2)
            potential = pac.AUCPotential if "y" in given else pac.ConcordancePotential
            potential("auc", scores=Z @ theta, gamma=20.0, **given)
            found[kind] = model, pm.fit(method=pac.EP(tolerance=1e-8), progressbar=False)
    return found


@EVERY_KIND
def test_the_risk_of_a_kind_is_that_of_its_pairs(kinds, kind):
    model, _ = kinds[kind]
    [graph] = model.replace_rvs_by_values(model.potentials)
    value = model.compile_fn(graph, inputs=model.value_vars, mode="FAST_COMPILE")
    design = design_of(kind)
    for at in np.random.default_rng(1).normal(size=(3, design.shape[1])):
        risk = listed_risk(design @ at, KINDS[kind][1])
        shape = model.initial_point()["theta"].shape
        assert value({"theta": at.reshape(shape)}) == pytest.approx(-20.0 * risk, abs=1e-10)


@EVERY_KIND
def test_ep_of_a_kind_is_the_papers(kinds, kind):
    mean, covariance, log_evidence = reference_ep(design_of(kind), None, 20.0, weighted_pairs=KINDS[kind][1])
    approx = kinds[kind][1]
    np.testing.assert_allclose(approx.q.mean, mean, atol=1e-6)
    np.testing.assert_allclose(approx.q.covariance, covariance, atol=1e-6)
    assert approx.log_evidence == pytest.approx(log_evidence, abs=1e-6)


@EVERY_KIND
def test_rows_of_a_kind_left_out(kinds, kind):
    """As EP of the pairs without them, at as much gamma as these weigh; in units of each group and class."""
    design, (i, j, w) = design_of(kind), KINDS[kind][1]
    groups = np.arange(36) // 3 % 4
    left = pac.leave_out(kinds[kind][1], groups=groups, refine=20, progressbar=False)
    out = np.tile(groups == 1, len(design) // 36)
    kept = ~(out[i] | out[j])
    pairs = i[kept], j[kept], w[kept]
    mean, _, _ = reference_ep(design, None, 20.0 * w[kept].sum() / w.sum(), weighted_pairs=pairs)
    exact = (design @ mean).reshape(-1, 36)
    for ours, theirs in zip(np.atleast_2d(left.scores.T), exact, strict=True):
        assert np.corrcoef(ours[groups == 1], theirs[groups == 1])[0, 1] > 1 - 1e-6


@EVERY_KIND
def test_what_a_kind_certifies(kinds, kind):
    if kind == "horizon":
        with pytest.raises(ValueError, match="no certificate with estimated weights"):
            pac.certificate(kinds[kind][1])
        return
    certified = pac.certificate(kinds[kind][1])
    assert 0.0 < certified.auc < certified.empirical_auc < 1.0


@EVERY_KIND
def test_predictions_and_files_of_a_kind(kinds, kind, tmp_path):
    pytest.importorskip("h5py")
    model, approx = kinds[kind]
    new = np.random.default_rng(2).normal(size=(4, 2))
    deployed = pac.predict_scores(approx, new, summary=True)["mean"]
    shape = model.initial_point()["theta"].shape
    np.testing.assert_allclose(deployed, new @ approx.q.mean.reshape(shape), atol=1e-10)
    draws = approx.sample(20, random_seed=1)
    draws.to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc")
    assert as_result(read).fitted_to == as_result(approx).fitted_to
    theta = draws["posterior"]["theta"].values
    exact = np.einsum("rd,csd...->csr...", new, theta)
    np.testing.assert_allclose(pac.predict_scores(read, new), exact, atol=1e-10)

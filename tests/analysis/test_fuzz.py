"""Properties of results that hold for every way of handling them; fitted once, handled many times."""

import json
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from hypothesis import assume
from hypothesis import strategies as st
from scipy.stats import rankdata

import pymc_pacauc as pac
from pymc_pacauc.certify.bounds import catoni_bound, catoni_rate, pac_bayes_kl
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.results import dataset_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.gamma import choose_gamma
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz

DRAWS, ROWS = 60, 40
NAMES = ["a", "b", "c"]


@cache
def fitted():
    """Model, approximation and draws of one small data set."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 3))
    with pm.Model(coords={"covariate": NAMES}) as model:
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=ROWS) > 0, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(DRAWS, step=step, chains=3, cores=1, random_seed=1, progressbar=False, quiet=True)
    return model, approx, idata


def selected(idata, draws, chains):
    groups = {name: dataset_of(idata, name).isel(draw=draws, chain=chains) for name in ("posterior", "sample_stats")}
    return inference_data(groups)


CHOSEN_DRAWS = st.lists(st.integers(0, DRAWS - 1), min_size=1, max_size=80)


@fuzz(
    "log_evidence",
    "results.LogEvidence",
    "certificate",
    fast=10,
    draws=CHOSEN_DRAWS,
    chains=st.permutations([0, 1, 2]),
)
def test_any_selection_of_draws_has_the_evidence_and_the_certificate_of_all(draws, chains):
    """log_evidence, certificate: repeated, reordered or dropped draws carry what their runs found."""
    _, _, idata = fitted()
    part = selected(idata, draws, chains)
    np.testing.assert_allclose(pac.log_evidence(part).estimate, pac.log_evidence(idata).estimate, rtol=1e-12)
    np.testing.assert_allclose(pac.certificate(part).auc, pac.certificate(idata).auc, rtol=1e-12)


@fuzz(
    "at_gamma", "results.TemperingWarning", draws=CHOSEN_DRAWS, gamma=st.floats(0.0, 20.0), seed=st.integers(0, 2**20)
)
def test_posteriors_at_a_lower_gamma_are_made_of_the_draws_there_are(draws, gamma, seed):
    """at_gamma: equally weighted draws, of the same chain, and an honest effective size."""
    _, _, idata = fitted()
    part = selected(idata, draws, [0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.TemperingWarning)  # few draws are left: that is what it says
        found = pac.at_gamma(part, gamma, random_seed=seed)
    source = dataset_of(part, "posterior")["theta"].values
    for chain in range(3):
        assert {tuple(row) for row in found["theta"].values[chain]} <= {tuple(row) for row in source[chain]}
    assert ((found["particle_ess"] >= 1 - 1e-9) & (found["particle_ess"] <= len(draws) + 1e-9)).all()


@fuzz(
    "predict_scores",
    "export",
    order=st.permutations(NAMES),
    rows=st.integers(1, 5),
    seed=st.integers(0, 2**20),
)
def test_columns_are_found_by_name_in_any_order(order, rows, seed):
    """predict_scores, export: frames in any order are the matrix in the model's."""
    _, approx, idata = fitted()
    X = np.random.default_rng(seed).normal(size=(rows, 3)) * 10.0 ** np.random.default_rng(seed).integers(-3, 4)
    frame = pd.DataFrame(X, columns=NAMES)[order]
    exact = pac.predict_scores(approx, frame, summary=True)
    np.testing.assert_allclose(exact["mean"], X @ approx.q.mean, rtol=1e-9)
    drawn = pac.predict_scores(idata, frame)
    np.testing.assert_allclose(drawn, idata["posterior"]["theta"].values @ X.T, rtol=1e-9)
    held = pac.export(approx)
    np.testing.assert_allclose(frame[held["columns"]].to_numpy() @ held["weights"], exact["mean"], rtol=1e-9)


@fuzz(
    "summary",
    draws=st.integers(1, 6),
    rows=st.integers(1, 6),
    levels=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_ranks_are_those_of_every_draw(draws, rows, levels, seed):
    """summary of scores, with ties: against one ranking at a time."""
    values = np.random.default_rng(seed).integers(0, levels, size=(1, draws, rows)).astype(float)
    found = pac.summary(xr.DataArray(values, dims=("chain", "draw", "row")), top=0.1)
    ranks = np.array([rankdata(-row) for row in values[0]])
    np.testing.assert_allclose(found["rank"], ranks.mean(axis=0))
    first = np.array([(row == row.max()) / np.sum(row == row.max()) for row in values[0]])
    np.testing.assert_allclose(found["in_top"], first.mean(axis=0))


@fuzz(
    "arrays.fit",
    "arrays.Fit",
    "results.ConvergenceWarning",
    rows=st.integers(8, 30),
    columns=st.integers(1, 4),
    gamma=st.floats(0.1, 40.0),
    seed=st.integers(0, 2**20),
)
def test_fits_of_any_small_data_have_possible_numbers(rows, columns, gamma, seed):
    """fit: evidence between -gamma and 0, a risk in [0, 1], a divergence not below 0, draws that are finite."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(rows, columns)).astype(float)
    y = rng.random(rows) < 0.4
    assume(0 < y.sum() < rows and X.std() > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)  # the numbers must be possible then, too
        result = fit(linear_gaussian_problem(X, y, gamma), "vb")
    assert result.log_evidence <= 1e-9
    assert result.log_evidence >= -gamma - 1e-9 or not result.converged
    assert 0.0 <= result.expected_risk <= 1.0
    assert result.divergence >= -1e-9
    assert np.isfinite(result.posterior.draw(3, rng)).all()
    np.testing.assert_allclose(result.log_evidence, -gamma * result.expected_risk - result.divergence, atol=1e-6)


# --- certificates, summaries, folds -----------------------------------------------------------------------------------


@fuzz(
    "certificate",
    "results.Certificate",
    "results.Provenance",
    epsilon=st.floats(1e-6, 0.5),
    among=st.integers(1, 1000),
    bound=st.sampled_from(["kl", "catoni"]),
    drawn=st.booleans(),
)
def test_certificates_are_their_bounds(epsilon, among, bound, drawn):
    """A closed form against the bound itself; every certificate is dearer with less epsilon or more priors."""
    _, approx, idata = fitted()
    result = idata if drawn else approx
    found = pac.certificate(result, epsilon, selected_from=among, bound=bound)
    assert 0.0 <= found.auc <= found.empirical_auc <= 1.0
    if bound == "kl":  # the rate of the other is for this epsilon
        assert pac.certificate(result, 0.5 * epsilon, selected_from=among).auc <= found.auc + 1e-12
    assert pac.certificate(result, epsilon, selected_from=among + 1, bound=bound).auc <= found.auc + 1e-12
    assert (found.n_pos, found.n_neg) == (approx.fitted_to.n_pos, approx.fitted_to.n_neg)
    assert (found.monte_carlo is not None) == drawn
    if not drawn:
        risk, kl, m = approx.mean_risk.value, approx.divergence.value, min(found.n_pos, found.n_neg)
        if bound == "kl":
            highest = pac_bayes_kl(risk, kl, m, epsilon / among)
        else:
            rate = catoni_rate(m, approx.fitted_to.coefficients, epsilon)
            highest = catoni_bound(risk, kl, m, epsilon / among, rate=rate)
        assert found.auc == 1.0 - highest
        assert found.mean_score_auc == max(0.0, 1.0 - 2.0 * highest)


@fuzz("results.without_data", fast=10, draws=st.integers(1, 90), drawn=st.booleans())
def test_draws_without_data(draws, drawn):
    """Draws, however many, score rows as before, and nothing has an entry for each training row."""
    _, approx, idata = fitted()
    some = idata if drawn else approx.sample(draws, random_seed=draws)
    kept = pac.results.without_data(some)
    rows = np.random.default_rng(draws).normal(size=(3, len(NAMES)))
    np.testing.assert_array_equal(pac.predict_scores(kept, rows), pac.predict_scores(some, rows))
    assert pac.certificate(kept) == pac.certificate(some)
    assert dataset_of(kept, "observed_data") is None
    for group in ("posterior", "sample_stats"):
        assert ROWS not in [size for dim, size in dataset_of(kept, group).sizes.items() if dim != "draw"]


@fuzz("summary", fast=15, ci_prob=st.floats(0.05, 0.99), epsilon=st.floats(1e-4, 0.5), drawn=st.booleans())
def test_summaries(ci_prob, epsilon, drawn):
    """A row per coefficient, the numbers of the result, an interval that grows with its probability."""
    _, approx, idata = fitted()
    table = pac.summary(idata if drawn else approx, ci_prob=ci_prob, epsilon=epsilon)
    assert [label for label in table.index if label.startswith("theta")] == [f"theta[{name}]" for name in NAMES]
    certified = pac.certificate(idata if drawn else approx, epsilon)
    assert table.attrs["certificate"] == certified
    assert f"{certified.auc:.4f}" in table.attrs["report"]
    assert table.attrs["log_evidence"] == pac.log_evidence(idata if drawn else approx).estimate
    if not drawn:
        np.testing.assert_allclose(table["mean"], approx.posterior.mean, atol=6e-4)
        low, high = table.iloc[:, 2], table.iloc[:, 3]
        wider = pac.summary(approx, ci_prob=ci_prob + 0.005).iloc[:, [2, 3]]
        theta = approx.sample(4000, random_seed=1)["posterior"]["theta"].values.reshape(-1, len(NAMES))
        within = np.mean((theta >= low.to_numpy()) & (theta <= high.to_numpy()), axis=0)
        np.testing.assert_allclose(within, ci_prob, atol=4 * 0.5 / np.sqrt(4000) + 0.01)
        assert (wider.iloc[:, 0] <= low + 1e-3).all()
        assert (wider.iloc[:, 1] >= high - 1e-3).all()


@fuzz(
    "leave_out", "results.LeaveOut", fast=15, groups=st.integers(2, 6), seed=st.integers(0, 2**20), names=st.booleans()
)
def test_leaving_out(groups, seed, names):
    """What groups are called and the order they come in change nothing; AUCs are those of the scores."""
    _, approx, _ = fitted()
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(ROWS) % groups)
    labels = rng.permutation(groups)[group]
    first = pac.leave_out(approx, group, progressbar=False, n_jobs=1)
    called = np.array([f"g{k}" for k in labels]) if names else labels
    second = pac.leave_out(approx, called, progressbar=False, n_jobs=1)
    np.testing.assert_allclose(first.scores, second.scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sort(first.group_auc), np.sort(second.group_auc), atol=1e-12)
    y = np.zeros(ROWS, dtype=bool)
    y[approx.fit.problem.pairs.blocks[0].positive] = True
    assert first.auc == pytest.approx(1.0 - pac.empirical_risk(first.scores, y))
    for k in range(groups):
        if np.unique(y[group == k]).size == 2:
            inside = 1.0 - pac.empirical_risk(first.scores[group == k], y[group == k])
            assert first.group_auc[k] == pytest.approx(inside)
            assert 0.0 <= first.group_expected_auc[k] <= 1.0
    assert (first.variance > 0).all()


@fuzz("tempering_path", draws=CHOSEN_DRAWS, chains=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
def test_paths_of_any_selection(draws, chains):
    """What the draws that are left carry is right; what they do not is NaN, and said."""
    _, _, idata = fitted()
    whole, part = pac.tempering_path(idata), selected(idata, draws, chains)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = pac.tempering_path(part)
    expected = whole.isel(chain=chains, stage=slice(found.sizes["stage"]))
    for name in ("gamma", "log_evidence", "expected_risk"):
        known = ~np.isnan(found[name].values)
        np.testing.assert_array_equal(found[name].values[known], expected[name].values[known])
    missing = np.isnan(found["log_evidence"].values) & ~np.isnan(expected["log_evidence"].values)
    assert missing.any() == any("idata has no record of" in str(w.message) for w in caught)


# --- gamma and hyper-parameters ---------------------------------------------------------------------------------------


@fuzz(
    "select_gamma",
    "results.GammaSelection",
    "arrays.choose_gamma",
    "arrays.GammaChoice",
    fast=10,
    data=small(columns=2),
    method=st.sampled_from(["ep", "vb"]),
    seed=st.integers(0, 2**20),
)
def test_choices_of_gamma(data, method, seed):
    """One of those given; the table is the mean of the folds; unit of X, order of rows and of gammas do not matter."""
    X, y, gamma, _ = data
    problem = linear_gaussian_problem(X, y, 1.0)
    options = {"folds": 2, "method": method}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        found = pac.select_gamma(problem, [gamma, 4 * gamma], progressbar=False, **options)
        other = linear_gaussian_problem(8.0 * X, y, 7.0)
        again = pac.select_gamma(other, [4 * gamma, gamma, gamma], progressbar=False, **options)
        alone = choose_gamma(problem, [gamma, 4 * gamma], n_jobs=1, **options)
        order = np.random.default_rng(seed).permutation(len(y))
        mixed = choose_gamma(linear_gaussian_problem(X[order], y[order], 1.0), [gamma], **options)
    assert found.best in (gamma, 4 * gamma)
    assert found.best == again.best == alone.gamma
    assert found.refit.problem.gamma == found.best
    np.testing.assert_allclose(found.table["auc"], found.fold_auc.mean(axis=(1, 2)))
    np.testing.assert_array_equal(found.fold_auc, again.fold_auc)
    assert found.table[["auc", "expected_auc", "training_auc"]].stack().between(0, 1).all()
    for fold in found.fold:
        assert all(0 < y[fold == k].sum() < np.sum(fold == k) for k in (0, 1))
    rows = X @ np.pi ** np.arange(X.shape[1])  # those that are alike may change places
    for fold, same in zip(found.fold, mixed.folds, strict=True):
        for k in (0, 1):
            np.testing.assert_allclose(np.sort(rows[order][same == k]), np.sort(rows[fold == k]))


@fuzz("select_gamma", fast=10, data=small(columns=2))
def test_choices_by_certificate(data):
    X, y, gamma, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        found = pac.select_gamma(
            linear_gaussian_problem(X, y, 1.0),
            [gamma, 3 * gamma],
            criterion="certificate",
            method="vb",
            progressbar=False,
        )
    best = found.table["certified_auc"].max()
    assert found.table["certified_auc"][found.table["gamma"] == found.best].item() == best
    assert pac.certificate(found).auc == pytest.approx(best, abs=1e-12)


@cache
def scaled_model():
    with pm.Model() as model:
        X, y, scale = pm.Data("X", np.eye(2)), pm.Data("y", [0, 1]), pm.Data("scale", [1.0, 1.0])
        theta = pm.Normal("theta", 0.0, scale, shape=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=5.0)
    return model


@fuzz("maximize_evidence", "results.EvidenceMaximum", fast=3, data=small(columns=2), ratio=st.floats(-2, 2))
def test_maxima_of_the_evidence(data, ratio):
    """No lower than where it began, on the data there are; the model holds what was found; no certificate of it."""
    X, y, _, _ = data
    X = np.column_stack([X, X[::-1] ** 2])[:, [0, -1]]
    assume((X.std(axis=0) > 0).all())
    model = scaled_model()
    with model:
        pm.set_data({"X": X, "y": y.astype(int), "scale": [1.0, 10.0**ratio]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pac.maximize_evidence(model, over=["scale"], max_evaluations=4, progressbar=False)
    assert found.log_evidence >= found.start_log_evidence - 1e-6
    assert (found.values["scale"] > 0).all()
    np.testing.assert_array_equal(model["scale"].get_value(), found.values["scale"])
    assert found.approx.fitted_to.tuned_prior
    with pytest.raises(ValueError, match="The prior was tuned on these data"):
        pac.certificate(found)


@fuzz("regularization_path", fast=2, data=small(columns=2), p=st.floats(0.1, 0.9), v0=st.floats(1e-4, 0.5))
def test_regularization_paths(data, p, v0):
    """Of converged fits the very numbers of a fit, of others NaN; the order of v0 does not matter."""
    X, y, gamma, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        path = pac.regularization_path((X, y), v0=[0.5, v0], gamma=gamma, p=p, n_jobs=1)
    np.testing.assert_array_equal(path["v0"], np.unique([v0, 0.5]))
    ended = path["converged"].values
    for name in ("coefficient", "sd", "inclusion_probability", "log_evidence", "expected_risk"):
        known = ~np.isnan(path[name].values)
        assert (known.reshape(len(ended), -1).all(axis=1) == ended).all()
    reached = path.isel(v0=np.flatnonzero(ended))
    assert ((reached["inclusion_probability"] >= 0) & (reached["inclusion_probability"] <= 1)).all()
    assert (reached["log_evidence"] <= 1e-9).all()
    np.testing.assert_allclose(reached["expected_model_size"], reached["inclusion_probability"].sum("feature"))


# --- sparse draws -----------------------------------------------------------------------------------------------------


@cache
def sparse_draws():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(20, 2))
    with pm.Model(coords={"covariate": ["a", "b"]}) as model:
        theta = pac.SpikeSlab("theta", p=0.4, dims="covariate")
        pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=20) > 0, gamma=10.0)
        step = pac.TemperingSMC(particles=100)
        idata = pm.sample(50, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    return model, idata


@fuzz("inclusion_probability", fast=15, draws=st.lists(st.integers(0, 49), min_size=1, max_size=60))
def test_inclusion_is_counted_from_the_draws_there_are(draws):
    _, idata = sparse_draws()
    part = inference_data({"posterior": dataset_of(idata, "posterior").isel(draw=draws)})
    found = pac.inclusion_probability(part)
    np.testing.assert_allclose(found, (part["posterior"]["theta"].values != 0).mean(axis=(0, 1)))
    assert list(found["covariate"].values) == ["a", "b"]


# --- thresholds of predictions ----------------------------------------------------------------------------------------


@fuzz(
    "results.Threshold",
    "choose_threshold",
    fast=5,
    rows=st.integers(1, 6),
    seed=st.integers(0, 2**20),
    fpr=st.floats(0, 1),
)
def test_thresholds_apply_to_draws_summaries_and_numbers_alike(rows, seed, fpr):
    _, approx, _ = fitted()
    problem = approx.fit.problem
    y = np.zeros(ROWS, dtype=bool)
    y[problem.pairs.blocks[0].positive] = True
    known = problem.X @ approx.q.mean
    chosen = pac.choose_threshold(known, y, fpr=fpr)
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    summary = pac.predict_scores(approx, X, summary=True)
    draws = pac.predict_scores(approx, X, draws=7, random_seed=seed)
    called = X @ approx.q.mean > chosen.value
    np.testing.assert_array_equal(chosen.apply(summary), called)
    np.testing.assert_array_equal(chosen.apply(draws), called)  # they carry their exact mean
    assert [chosen.apply(float(score)) for score in summary["mean"]] == called.tolist()
    share = np.asarray(chosen.probability(draws))
    np.testing.assert_allclose(share, (draws.values > chosen.value).mean(axis=(0, 1)))
    assert pac.results.Threshold.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen

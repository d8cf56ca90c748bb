import subprocess
import sys

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_pacauc as pac
from pymc_pacauc.model.results import dataset_of

rng = np.random.default_rng(4)
X = rng.normal(size=(80, 3))
y = X @ [1.0, 0.5, 0.0] + rng.normal(size=80) > 0.3
X_new = rng.normal(size=(7, 3))


def build():
    with pm.Model(coords={"covariate": ["a", "b", "c"], "row": np.arange(80)}) as model:
        rows = pm.Data("X", X, dims=("row", "covariate"))
        labels = pm.Data("y", y, dims="row")
        theta = pm.Normal("theta", dims="covariate")
        scores = pm.Deterministic("scores", rows @ theta, dims="row")
        pac.AUCPotential("auc", scores, labels, gamma=40.0)
    return model


@pytest.fixture(scope="module")
def fitted():
    model = build()
    with model:
        approx = pm.fit(method=pac.EP(), progressbar=False)
    return model, approx, approx.sample(400, random_seed=1)


def test_draws_and_moments(fitted):
    model, approx, idata = fitted
    scores = pac.predict_scores(idata, X_new, model=model)
    assert scores.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(scores, idata["posterior"]["theta"].values @ X_new.T)
    exact = pac.predict_scores(approx, X_new, summary=True)
    mean, covariance = approx.q.mean, approx.posterior.covariance
    np.testing.assert_allclose(exact["mean"], X_new @ mean)
    np.testing.assert_allclose(exact["sd"], np.sqrt(np.diag(X_new @ covariance @ X_new.T)))
    sampled = pac.predict_scores(idata, X_new, model=model, summary=True)
    np.testing.assert_allclose(sampled["mean"], exact["mean"], atol=5 * float(exact["sd"].max()) / 20)
    drawn = pac.predict_scores(approx, X_new, draws=50, random_seed=3)
    assert drawn.shape == (1, 50, 7)
    xr.testing.assert_equal(drawn, pac.predict_scores(approx, X_new, draws=50, random_seed=3))


def test_without_a_model(fitted):
    """Draws say how a row becomes a score; where they do not, the caller says it, or it is refused."""
    _, _, idata = fitted
    expected = idata["posterior"]["theta"].values @ X_new.T
    np.testing.assert_allclose(pac.predict_scores(idata, X_new), expected)
    posterior = dataset_of(idata, "posterior")
    np.testing.assert_allclose(pac.predict_scores(posterior, X_new), expected)
    bare = posterior.drop_vars("score_function")
    for draws in (idata, bare):
        np.testing.assert_allclose(pac.predict_scores(draws, X_new, var_name="theta"), expected)
    with pytest.raises(ValueError, match="does not contain how a row becomes a score"):
        pac.predict_scores(bare, X_new)


def test_rows_of_a_frame_keep_their_index(fitted):
    frame = pd.DataFrame(X_new, index=list("uvwxyzk"))
    predicted = pac.predict_scores(fitted[1], frame, summary=True)
    assert predicted["row"].values.tolist() == list("uvwxyzk")


def test_any_function_of_the_data():
    """Scores with an intercept, a transformation of X and several variables."""
    with pm.Model() as model:
        rows = pm.Data("X", X)
        slope, bend = pm.Normal("slope", size=3), pm.Normal("bend", size=3)
        pac.AUCPotential("auc", rows @ slope + (rows**2) @ bend + rows[:, 0], y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    idata = approx.sample(30, random_seed=1)
    slope, bend = (idata["posterior"][name].values for name in ("slope", "bend"))
    expected = slope @ X_new.T + bend @ (X_new**2).T + X_new[:, 0]
    np.testing.assert_allclose(pac.predict_scores(idata, X_new, model=model), expected)
    exact = pac.predict_scores(approx, X_new, summary=True)
    design = np.hstack([X_new, X_new**2])
    np.testing.assert_allclose(exact["mean"], design @ approx.q.mean + X_new[:, 0])


@pytest.mark.slow
def test_nonlinear_models_predict_too():
    with pm.Model() as model:
        rows = pm.Data("X", X)
        scale = pm.HalfNormal("scale")
        theta = pm.Normal("theta", 0, scale, shape=3)
        pac.AUCPotential("auc", pm.math.tanh(rows @ theta), y, gamma=20.0)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(50, step=step, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    scores = pac.predict_scores(idata, X_new, model=model)
    np.testing.assert_allclose(scores, np.tanh(idata["posterior"]["theta"].values @ X_new.T))


def test_the_exact_mean_travels_with_the_draws(fitted, tmp_path):
    """Through a file and thinning; with the model and without."""
    model, approx, _ = fitted
    exact = pac.predict_scores(approx, X_new, summary=True)["mean"]
    approx.sample(20, random_seed=1).to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc")
    few = read.isel(draw=slice(None, None, 7))
    for draws, options in ((read, {}), (few, {}), (read, {"model": model})):
        scores = pac.predict_scores(draws, X_new, **options)
        np.testing.assert_allclose(scores["mean_score"], exact, rtol=1e-10)
        np.testing.assert_allclose(pac.predict_scores(draws, X_new, summary=True, **options)["mean"], exact, rtol=1e-10)
    assert pac.summary(read).attrs["auc"] == pac.summary(approx).attrs["auc"] == approx.training_auc
    assert "mean_score" not in pac.predict_scores(dataset_of(read, "posterior"), X_new, var_name="theta").coords


def test_scores_that_are_random_by_row_have_none_at_other_rows():
    """As many new rows as there were: their scores must not be those of the old ones."""
    with pm.Model():
        rows = pm.Data("X", X)
        f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", rows)
        pac.AUCPotential("auc", f, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    for result in (approx, approx.sample(5)):
        with pytest.raises(ValueError, match="say gp="):
            pac.predict_scores(result, X[::-1], model=None if result is approx else approx.model)


def test_saved_reloaded_and_predicted_in_a_new_process(fitted, tmp_path):
    pytest.importorskip("h5py")
    model, _, idata = fitted
    idata.to_netcdf(tmp_path / "fit.nc")
    np.save(tmp_path / "rows.npy", X_new)
    code = f"""
import arviz as az, numpy as np, pymc_pacauc as pac
idata = az.from_netcdf(r"{tmp_path / "fit.nc"}")
np.save(r"{tmp_path / "scores.npy"}", pac.predict_scores(idata, np.load(r"{tmp_path / "rows.npy"}")))
print(pac.certificate(idata).auc, pac.summary(idata).attrs["log_evidence"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), pac.predict_scores(idata, X_new, model=model))
    assert float(done.stdout.split()[0]) == pytest.approx(pac.certificate(fitted[1]).auc)


def test_ranks(fitted):
    _, approx, _ = fitted
    scores = pac.predict_scores(approx, X_new, draws=300, random_seed=1)
    table = pac.summary(scores, ci_prob=0.8, top=1 / 7)
    assert table["rank"].sum() == pytest.approx(28)
    assert table["in_top"].sum() == pytest.approx(1)
    assert ((table["rank_lower"] <= table["rank"]) & (table["rank"] <= table["rank_upper"])).all()
    np.testing.assert_allclose(table["mean"], X_new @ approx.q.mean)
    np.testing.assert_allclose(table["sd"], scores.std(("chain", "draw")))
    np.testing.assert_allclose(table["lower"], scores.quantile(0.1, ("chain", "draw")))
    np.testing.assert_allclose(table["upper"], scores.quantile(0.9, ("chain", "draw")))
    below = (scores[..., 0] > scores[..., 1:]).mean().item() * 6
    assert table["rank"].iloc[0] == pytest.approx(7 - below)
    for options in ({"ci_prob": 0}, {"top": 0.0}, {"top": 1.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            pac.summary(scores, **options)
    with pytest.raises(TypeError, match="takes ci_prob= and top=; got round_to"):
        pac.summary(scores, round_to=2)
    with pytest.raises(ValueError, match=r"top=0\.1 is for draws of scores.*predict_scores\(result, X_new\), top=0\.1"):
        pac.summary(approx, top=0.1)


def test_refusals(fitted):
    _, approx, idata = fitted
    for result in (approx, idata):
        with pytest.raises(ValueError, match=r"X has 2 columns; the scores of this model have 3 \(a, b, c\)"):
            pac.predict_scores(result, X_new[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        pac.predict_scores(approx, np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match=r"has the names nothing; the pm\.Data of the scores are X"):
        pac.predict_scores(approx, {"nothing": X_new})
    with pytest.raises(ValueError, match="is not in the posterior, which has"):
        pac.predict_scores(idata, X_new, var_name="beta")
    with pytest.raises(TypeError, match="result must be"):
        pac.predict_scores(3.0, X_new)
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=40.0)
        plain = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.raises(ValueError, match="X_new has 2 columns; the scores of this model have 3"):
        pac.predict_scores(plain, X_new[:, :2])


def test_a_gaussian_process_is_not_predicted_by_replacing_its_data():
    with pm.Model():
        rows = pm.Data("X", X[:20])
        f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", rows)
        pac.AUCPotential("auc", f, y[:20], gamma=10.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.raises(ValueError, match="one row at a time"):
        pac.predict_scores(approx, X_new, summary=True)


SLICES = {
    "a chain": (lambda idata: idata.isel(chain=0), slice(None)),
    "a draw": (lambda idata: idata.isel(draw=5), [5]),
    "one of all": (lambda idata: idata.isel(chain=0, draw=5), [5]),
    "some draws": (lambda idata: idata.isel(draw=slice(0, 30, 3)), slice(0, 30, 3)),
    "a group": (lambda idata: idata["posterior"], slice(None)),
    "a chain of a group": (lambda idata: idata["posterior"].isel(chain=0), slice(None)),
    "stacked": (az.extract, slice(None)),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_draws(fitted, name):
    """What xarray or ArviZ leaves of the dimensions, in ArviZ 0.x and 1.x."""
    _, _, idata = fitted
    cut, kept = SLICES[name]
    found = pac.predict_scores(cut(idata), X_new)
    assert found.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(found.values, idata["posterior"]["theta"].values[:, kept] @ X_new.T)
    if name in ("a chain", "some draws"):
        assert "theta[a]" in pac.summary(cut(idata), var_names=["theta"]).index


@pytest.mark.parametrize("kind", ["Latent", "HSGP"])
def test_draws_of_a_gaussian_process_carry_its_mean(kind):
    """Of an approximation the exact one; of any draws one that does not depend on the noise at new points."""
    options = {"m": [3, 3, 3], "c": 2.0} if kind == "HSGP" else {}
    with pm.Model() as model:
        gp = getattr(pm.gp, kind)(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0), **options)
        pac.AUCPotential("auc", gp.prior("f", X=X[:40]), y[:40], gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    exact = pac.predict_scores(approx, X_new, gp=gp, summary=True)["mean"]
    draws = approx.sample(20, random_seed=1)
    for found in (draws, draws["posterior"]):
        first, second = (pac.predict_scores(found, X_new, gp=gp, model=model, random_seed=k) for k in (1, 2))
        np.testing.assert_allclose(first["mean_score"], second["mean_score"])
        if found is draws:
            np.testing.assert_allclose(first["mean_score"], exact, atol=1e-6)
        summary = pac.predict_scores(found, X_new, gp=gp, model=model, summary=True)
        np.testing.assert_allclose(summary["mean"], first["mean_score"])


def test_rows_that_tie_share_the_top():
    scores = xr.DataArray([[[2.0, 2.0, 1.0], [3.0, 1.0, 2.0], [5.0, 5.0, 5.0]]], dims=("chain", "draw", "row"))
    ranks = pac.summary(scores, top=1 / 3)
    np.testing.assert_allclose(ranks["in_top"], [(1 / 2 + 1 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 3, (1 / 3) / 3])
    np.testing.assert_allclose(ranks["rank"], [(1.5 + 1 + 2) / 3, (1.5 + 3 + 2) / 3, (3 + 2 + 2) / 3])


# -- nothing is guessed ----------------------------------------------------------------------------------------------


def with_offset(**data):
    """Scores 2 x_0 + x_1:3 @ theta, x_0 known to count twice."""
    rows = pm.Data("X", X) if data else X
    theta = pm.Normal("theta", size=2)
    pac.AUCPotential("auc", 2 * rows[:, 0] + rows[:, 1:] @ theta, y, gamma=40.0)


@pytest.mark.parametrize("method", ["ep", "smc"])
def test_a_known_offset_is_used_or_refused(method):
    for data in ({}, {"held": True}):
        with pm.Model() as model:
            with_offset(**data)
            if method == "ep":
                result = pm.fit(method=pac.EP(), progressbar=False)
            else:
                options = {"chains": 1, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
                result = pm.sample(50, step=pac.TemperingSMC(particles=100), **options)
        if not data:
            for rows in (X_new, X_new[:, 1:]):
                for options in ({"model": model}, {}):
                    with pytest.raises(ValueError, match=r"put covariates and known offsets into pm\.Data"):
                        pac.predict_scores(result, rows, **options)
            continue
        found = pac.predict_scores(result, X_new, model=model, summary=True)
        theta = result.q.mean if method == "ep" else result["posterior"]["theta"].mean(("chain", "draw")).values
        np.testing.assert_allclose(found["mean"], 2 * X_new[:, 0] + X_new[:, 1:] @ theta, rtol=1e-6)


@pytest.mark.parametrize("held", [True, False])
def test_columns_of_a_frame_are_matched_by_name(held):
    with pm.Model(coords={"covariate": ["a", "b", "c"]}) as model:
        rows = pm.Data("X", X, dims=("row", "covariate")) if held else X
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", rows @ theta, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    idata = approx.sample(50, random_seed=1)
    frame = pd.DataFrame(X_new, columns=["a", "b", "c"])
    for result in (approx, idata):
        expected = pac.predict_scores(result, X_new, model=model, summary=True)["mean"].values
        for columns in (["a", "b", "c"], ["c", "a", "b"]):
            found = pac.predict_scores(result, frame[columns], model=model, summary=True)
            np.testing.assert_allclose(found["mean"], expected)
        alone = pac.predict_scores(result, frame[["b", "c", "a"]].iloc[0], model=model, summary=True)
        np.testing.assert_allclose(alone["mean"], expected[:1])
        with pytest.raises(ValueError, match="missing: c; unknown: d"):
            pac.predict_scores(result, frame.rename(columns={"c": "d"}), model=model)
    np.testing.assert_allclose(
        pac.predict_scores(idata, frame[["c", "b", "a"]]), pac.predict_scores(idata, X_new, model=model)
    )


def test_several_data_by_name():
    group = np.arange(80) % 4
    with pm.Model() as model:
        rows, place = pm.Data("X", X), pm.Data("group", group)
        theta, level = pm.Normal("theta", size=3), pm.Normal("level", size=4)
        pac.AUCPotential("auc", rows @ theta + level[place], y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    new = {"X": X_new, "group": [0, 1, 2, 3, 0, 1, 2]}
    mean = approx.q.mean
    expected = X_new @ mean[:3] + mean[3:][new["group"]]
    np.testing.assert_allclose(pac.predict_scores(approx, new, summary=True)["mean"], expected)
    draws = pac.predict_scores(approx.sample(20, random_seed=1), new, model=model)
    assert draws.shape == (1, 20, 7)
    named = pac.predict_scores(approx, {"X": pd.DataFrame(X_new, index=list("tuvwxyz")), "group": new["group"]})
    assert list(named["row"].values) == list("tuvwxyz")
    with pytest.raises(ValueError, match="group holds whole numbers in the model"):
        pac.predict_scores(approx, {"X": X_new[:2], "group": [0.5, 1.0]})
    with pytest.raises(ValueError, match="group must be codes of groups, 0 to 3"):
        pac.predict_scores(approx, {"X": X_new[:2], "group": ["a", "b"]})
    with pytest.raises(ValueError, match="depend on group too"):
        pac.predict_scores(approx, X_new)
    with pytest.raises(ValueError, match="different numbers of rows"):
        pac.predict_scores(approx, {"X": X_new, "group": [0, 1]})
    with pytest.raises(ValueError, match=r"wards; the pm\.Data of the scores are"):
        pac.predict_scores(approx, {"X": X_new, "wards": [0, 1]})


def test_an_intercept_ranks_nothing_and_needs_no_column():
    with pm.Model():
        level, theta = pm.Normal("level"), pm.Normal("theta", size=3)
        pac.AUCPotential("auc", level + X @ theta, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    found = pac.predict_scores(approx, X_new, summary=True)
    np.testing.assert_allclose(found["mean"], X_new @ approx.q.mean[1:])


def test_scores_that_are_not_linear_need_their_model():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", pm.math.tanh(X @ theta), y, gamma=20.0)
        options = {"chains": 1, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
        idata = pm.sample(50, step=pac.TemperingSMC(particles=100), **options)
    with pytest.raises(ValueError, match="pass model="):
        pac.predict_scores(idata, X_new)
    found = pac.predict_scores(idata, X_new, model=model)
    np.testing.assert_allclose(found, np.tanh(idata["posterior"]["theta"].values @ X_new.T))


# --- hierarchies ------------------------------------------------------------------------------------------------------

GROUP = np.arange(80) % 4


def hierarchy(spelling):
    with pm.Model() as model:
        rows, group = pm.Data("X", X), pm.Data("group", GROUP)
        mu, tau = pm.Normal("mu", size=3), pm.HalfNormal("tau")
        if spelling == "centred":
            theta = pm.Normal("theta", mu, tau, shape=(4, 3))[group]
        elif spelling == "non-centred":
            theta = (mu + tau * pm.Normal("z", size=(4, 3)))[group]
        else:
            theta = pm.Normal("theta", mu, tau, shape=(4, 3))[group, :]
        pac.AUCPotential("auc", (rows * theta).sum(axis=1), y, gamma=20.0)
    return model


def known_draws(spelling, draws=400):
    """Not a posterior: any draws of the free variables will do."""
    rng = np.random.default_rng(1)
    name = "z" if spelling == "non-centred" else "theta"
    return xr.Dataset(
        {
            "mu": (("chain", "draw", "k"), np.array([5.0, 0.0, 0.0]) + 0.1 * rng.normal(size=(1, draws, 3))),
            "tau": (("chain", "draw"), np.full((1, draws), 0.5)),
            name: (("chain", "draw", "g", "k"), rng.normal(size=(1, draws, 4, 3))),
        },
        coords={"chain": [0], "draw": np.arange(draws)},
    )


@pytest.mark.parametrize("spelling", ["centred", "non-centred", "sliced"])
def test_new_groups_are_refused(spelling):
    """By codes; those of known groups are scored by their coefficients."""
    model, draws = hierarchy(spelling), known_draws(spelling)
    new = {"X": np.eye(3)[[0, 0, 1]], "group": [2, 7, 9]}
    with pytest.raises(ValueError, match=r"group has codes .* \(7, 9\): it has 4 groups, 0 to 3"):
        pac.predict_scores(draws, new, model=model)
    known = pac.predict_scores(draws, {"X": np.eye(3)[[0]], "group": [2]}, model=model)[0]
    theta = draws["mu"] + draws["tau"] * draws["z"] if spelling == "non-centred" else draws["theta"]
    np.testing.assert_allclose(known[:, 0], theta.isel(chain=0, g=2, k=0))


def test_groups_of_an_approximation():
    """A hierarchy with a fixed scale is linear-Gaussian: in closed form for known groups."""
    with pm.Model():
        rows, group = pm.Data("X", X), pm.Data("group", GROUP)
        mu = pm.Normal("mu", size=3)
        theta = pm.Normal("theta", mu, 0.5, shape=(4, 3))
        pac.AUCPotential("auc", (rows * theta[group]).sum(axis=1), y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    place = approx.source.parts["theta"].start
    known = pac.predict_scores(approx, {"X": X_new, "group": np.zeros(7, int)}, summary=True)
    np.testing.assert_allclose(known["mean"], X_new @ approx.q.mean[place : place + 3])
    with pytest.raises(ValueError, match=r"group has codes .* \(5\)"):
        pac.predict_scores(approx, {"X": X_new, "group": np.full(7, 5)}, summary=True)


def test_draws_of_an_approximation_carry_the_exact_mean(fitted):
    _, approx, _ = fitted
    scores = pac.predict_scores(approx, X_new, draws=5, random_seed=1)
    np.testing.assert_allclose(scores["mean_score"], X_new @ approx.q.mean)
    threshold = pac.choose_threshold(pac.predict_scores(approx, X, draws=20, random_seed=1), y, fpr=0.2)
    for k in range(7):
        expected = bool(X_new[k] @ approx.q.mean > threshold.value)
        assert threshold.apply(pac.predict_scores(approx, X_new[k], draws=3)).item() is expected
        assert threshold.apply(pac.predict_scores(approx, X_new[k], summary=True)).item() is expected


def test_single_rows_frames_and_intercepts():
    with pm.Model(coords={"covariate": ["a", "b", "c"]}) as model:
        level = pm.Normal("level", 0, 5)
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", level + X @ theta, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    idata = approx.sample(50, random_seed=1)
    frame = pd.DataFrame(X_new, columns=["a", "b", "c"], index=list("uvwxyzk"))[["c", "a", "b"]]
    expected = X_new @ approx.q.mean[approx.source.parts["theta"]]
    for new, rows in ((X_new, slice(None)), (frame, slice(None)), (X_new[2], [2]), (frame.iloc[2], [2])):
        np.testing.assert_allclose(pac.predict_scores(approx, new, summary=True)["mean"], expected[rows])
        for options in ({}, {"model": model}):
            drawn = pac.predict_scores(idata, new, **options)
            scores = idata["posterior"]["theta"].values @ X_new[rows].T
            np.testing.assert_allclose(drawn, scores + idata["posterior"]["level"].values[..., None])

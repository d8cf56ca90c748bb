"""New rows are ranked as the model ranks them, or refused in words: forms of scores x kinds of input x ways to predict.

The oracle is the model's own expression, evaluated on the new rows.
"""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc.model.results import as_result, dataset_of
from pymc_pacauc.model.score_function import read_scores

rng = np.random.default_rng(6)
N, D = 30, 3
NAMES = ["age", "glu", "bmi"]
X = rng.normal(size=(N, D)) + np.array([0.0, 1.0, -2.0])
y = X @ [1.0, -0.7, 0.3] + 0.8 * rng.normal(size=N) > -1.3  # about half of them
NEW = rng.normal(size=(6, D))
FRAME = pd.DataFrame(NEW, columns=NAMES, index=list("uvwxyz"))
L = np.array([[2.0, 0.0, 0.0], [-1.0, 0.5, 0.0], [0.3, 1.5, -1.0]])
SIGNS = np.array([1.0, -1.0, -2.0])
QUIET = {"chains": 1, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
OURS = (ValueError, TypeError)

FORMS = {  # scores of rows Z and coefficients b
    "plain": lambda Z, b: Z @ b,
    "negative": lambda Z, b: -(Z @ b),
    "reversed": lambda Z, b: Z @ b[::-1],
    "signs": lambda Z, b: Z @ (b * SIGNS),
    "not centred": lambda Z, b: Z @ pt.dot(L, b),
    "twice": lambda Z, b: 2 * Z @ b,
    "some columns": lambda Z, b: Z[:, 1:] @ b[1:] + b[0],
    "one by one": lambda Z, b: Z[:, 0] * b[2] - Z[:, 1] * b[0] + b[1] * Z[:, 2] / 3,
    "joined": lambda Z, b: Z @ pt.concatenate([b[2:], -b[:2]]),
    "offset": lambda Z, b: 2 * Z[:, 0] + Z @ b,
    "squares": lambda Z, b: (Z**2) @ b,
}
NO_ROW = {
    "standardised": lambda Z, b: ((Z - Z.mean(axis=0)) / Z.std(axis=0)) @ b,
    "centred": lambda Z, b: Z @ b - (Z @ b).mean(),
    "by the largest": lambda Z, b: (Z / abs(Z).max(axis=0)) @ b,
}
HELD = {
    "written": lambda: pt.as_tensor(X),
    "pm.Data": lambda: pm.Data("X", X),
    "named pm.Data": lambda: pm.Data("X", X, dims=("row", "covariate")),
}


def build(form, held, potential=None):
    with pm.Model(coords={"covariate": NAMES}) as model:
        b = pm.Normal("b", shape=D)
        scores = form(HELD[held](), b)
        if potential is None:
            pac.AUCPotential("auc", scores, y, gamma=20.0)
        else:
            potential(scores)
    return model


def fit(model):
    with model:
        return pm.fit(method=pac.EP(), progressbar=False)


def expected(form, b, rows=NEW):
    """The model's own expression at the new rows, for each draw of b[N, D]."""
    return np.array([form(pt.as_tensor(rows), pt.as_tensor(each)).eval() for each in b])


def draws_of(idata, name="b"):
    values = dataset_of(idata, "posterior")[name].transpose("chain", "draw", ...).values
    return values.reshape(-1, *values.shape[2:])


@pytest.fixture(scope="module")
def fits():
    return {(name, held): fit(build(form, held)) for name, form in FORMS.items() for held in HELD}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", FORMS)
def test_every_way_to_predict(fits, name, held, tmp_path):
    pytest.importorskip("h5py")
    approx, form = fits[name, held], FORMS[name]
    mean = expected(form, approx.q.mean[None])[0]
    np.testing.assert_allclose(pac.predict_scores(approx, NEW, summary=True)["mean"], mean, rtol=1e-10)
    draws = approx.sample(4, random_seed=1)
    truth = expected(form, draws_of(draws))
    draws.to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc")
    linear = name != "squares"
    assert as_result(read).score_function.linear == linear
    for result in (draws, read, read.isel(draw=[0, 1, 2, 3]), dataset_of(read, "posterior")):
        for options in ({}, {"model": approx.model}):
            if not linear and not options:
                with pytest.raises(ValueError, match="pass model="):
                    pac.predict_scores(result, NEW)
                continue
            found = pac.predict_scores(result, NEW, **options)
            np.testing.assert_allclose(found.values[0], truth, rtol=1e-10, atol=1e-12)
    with approx.model:
        in_context = pac.predict_scores(draws, NEW)
    np.testing.assert_allclose(in_context.values[0], truth, rtol=1e-10, atol=1e-12)
    single = pac.predict_scores(approx, NEW[2], summary=True)["mean"]
    np.testing.assert_allclose(single, mean[2:3], rtol=1e-10)


LABELLED = {
    "frame": FRAME[["bmi", "age", "glu"]],
    "frame of mixed types": FRAME[["bmi", "age", "glu"]].assign(glu=FRAME["glu"] > 0),
    "DataArray reversed": xr.DataArray(NEW, dims=("row", "covariate"), coords={"covariate": NAMES})[:, ::-1],
    "DataArray transposed": xr.DataArray(NEW, dims=("row", "covariate"), coords={"covariate": NAMES}).T,
    "row of a frame": FRAME[["glu", "bmi", "age"]].iloc[0],
}


@pytest.mark.parametrize("rows", LABELLED.values(), ids=LABELLED)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", ["plain", "reversed", "not centred"])
def test_names_are_matched_or_refused(fits, name, held, rows):
    approx = fits[name, held]
    if held != "named pm.Data":
        with pytest.raises(ValueError, match=r"the model has no names.*pm\.Model\(coords=.*NumPy array"):
            pac.predict_scores(approx, rows)
        return
    by_position = FRAME.assign(glu=rows["glu"])[NAMES] if hasattr(rows, "columns") else FRAME
    by_position = by_position.to_numpy(dtype=float)[: 1 if rows.ndim == 1 else None]
    truth = pac.predict_scores(approx, by_position, summary=True)["mean"]
    found = pac.predict_scores(approx, rows, summary=True)
    np.testing.assert_allclose(found["mean"], truth)
    if hasattr(rows, "columns"):
        assert found["row"].values.tolist() == list("uvwxyz")


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("form", NO_ROW.values(), ids=NO_ROW)
def test_what_is_no_function_of_a_row_is_refused_when_predicted(form, held):
    approx = fit(build(form, held))
    for result in (approx, approx.sample(3)):
        for rows in (NEW, X[::-1]):
            with pytest.raises(ValueError, match=r"not a function of one row at a time.*outside the model"):
                pac.predict_scores(result, rows)


SAMPLED = {
    "tanh": lambda Z, b: pt.tanh(Z @ b),
    "absolute": lambda Z, b: Z @ abs(b),
    "negative": FORMS["negative"],
    "not centred": FORMS["not centred"],
}


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("held", ["written", "pm.Data"])
def test_draws_of_smc(name, held, tmp_path):
    pytest.importorskip("h5py")
    form = SAMPLED[name]
    model = build(form, held)
    with model:
        idata = pm.sample(20, step=pac.TemperingSMC(particles=100), **QUIET)
    idata.to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc").isel(draw=slice(3, None, 4))
    truth = expected(form, draws_of(read))
    np.testing.assert_allclose(pac.predict_scores(read, NEW, model=model).values[0], truth, rtol=1e-10)
    if name in FORMS:
        np.testing.assert_allclose(pac.predict_scores(read, NEW).values[0], truth, rtol=1e-10)
        with pytest.raises(ValueError, match="computes other scores"):
            pac.predict_scores(read, NEW, model=build(FORMS["plain"], held))
    else:
        with pytest.raises(ValueError, match="pass model="):
            pac.predict_scores(read, NEW)


def test_concordance_and_surrogates():
    time, event = rng.gamma(2.0, size=N), np.ones(N, dtype=bool)
    survival = fit(
        build(FORMS["negative"], "pm.Data", lambda s: pac.ConcordancePotential("c", s, time, event, gamma=9.0))
    )
    mean = pac.predict_scores(survival, NEW, summary=True)["mean"]
    np.testing.assert_allclose(mean, -NEW @ survival.q.mean, rtol=1e-10)
    smooth = build(FORMS["signs"], "written", lambda s: pac.AUCPotential("auc", s, y, gamma=5.0, loss="logistic"))
    draws = xr.Dataset({"b": (("chain", "draw", "k"), rng.normal(size=(1, 4, 3)))})
    found = pac.predict_scores(draws, NEW, model=smooth)
    np.testing.assert_allclose(found.values[0], expected(FORMS["signs"], draws_of({"posterior": draws})))


def test_as_the_model_was_when_it_was_fitted():
    """Whatever pm.Data hold later."""
    with pm.Model() as model:
        signs, rows = pm.Data("signs", SIGNS), pm.Data("X", X)
        pac.AUCPotential("auc", rows @ (signs * pm.Normal("b", shape=D)), y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        pm.set_data({"signs": -SIGNS, "X": X[:5]})
        draws = approx.sample(4, random_seed=1)
    truth = NEW @ (SIGNS * approx.q.mean)
    np.testing.assert_allclose(pac.predict_scores(approx, NEW, summary=True)["mean"], truth)
    np.testing.assert_allclose(pac.predict_scores(draws, NEW)["mean_score"], truth)
    with pytest.raises(ValueError, match="computes other scores"):
        pac.predict_scores(draws, NEW, model=model)
    np.testing.assert_array_equal(model["signs"].get_value(), -SIGNS)


def test_names_from_the_coefficients():
    """Of a matrix that has none: through the weights, whatever their order; two blocks are refused."""
    coords = {"covariate": NAMES, "gene": ["g1", "g2"], "number": [7, 3, 5]}
    G = rng.normal(size=(N, 2))
    with pm.Model(coords=coords):
        b = pm.Normal("b", dims="covariate")
        pac.AUCPotential("auc", X @ b[::-1], y, gamma=20.0)
        turned = pm.fit(method=pac.EP(), progressbar=False)
    found = pac.predict_scores(turned, FRAME, summary=True)["mean"]  # b[0] is age's
    np.testing.assert_allclose(found, FRAME[NAMES] @ turned.q.mean)
    with pm.Model(coords=coords):
        g, b = pm.Normal("g", dims="gene"), pm.Normal("b", dims="covariate")
        pac.AUCPotential("auc", X @ b + G @ g, y, gamma=20.0)
        blocks = pm.fit(method=pac.EP(), progressbar=False)
    wide = FRAME.assign(g2=0.5, g1=-2.0)
    for rows in (wide, wide[["g1", "g2", *NAMES]].to_numpy()):
        with pytest.raises(ValueError, match=r"2 columns\) and .*3 columns\), for which X_new has no values: put"):
            pac.predict_scores(blocks, rows, summary=True)
    with pm.Model(coords=coords):
        pac.AUCPotential("auc", X @ pm.Normal("b", dims="number"), y, gamma=20.0)
        numbered = pm.fit(method=pac.EP(), progressbar=False)
    frame = pd.DataFrame(NEW, columns=[7, 3, 5])[[3, 5, 7]]
    found = pac.predict_scores(numbered, frame, summary=True)["mean"]
    np.testing.assert_allclose(found, NEW @ numbered.q.mean)
    with pytest.raises(ValueError, match="missing: 7, 3, 5; unknown: age"):
        pac.predict_scores(numbered, FRAME)


def test_groups_by_label():
    group = np.arange(N) % 3
    with pm.Model(coords={"place": ["north", "east", "west"], "covariate": NAMES}) as model:
        rows, ward = pm.Data("X", X, dims=("row", "covariate")), pm.Data("ward", group, dims="row")
        b, level = pm.Normal("b", dims="covariate"), pm.Normal("level", dims="place")
        pac.AUCPotential("auc", rows @ b + level[ward], y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    by_code = pac.predict_scores(approx, {"X": NEW, "ward": [2, 0, 1, 1, 0, 2]}, summary=True)["mean"]
    labels = pd.Series(["west", "north", "east", "east", "north", "west"], index=FRAME.index)
    for given_labels in (labels, labels.to_numpy(), labels.astype("category")):
        found = pac.predict_scores(approx, {"ward": given_labels, "X": FRAME}, summary=True)["mean"]
        np.testing.assert_allclose(found, by_code)
    with pytest.raises(ValueError, match=r"labels that the model has no coefficients for \(south\)"):
        pac.predict_scores(approx, {"X": NEW[:2], "ward": ["south", "west"]})
    with pytest.raises(ValueError, match="different labels"):
        pac.predict_scores(approx, {"X": FRAME, "ward": labels[::-1]})
    with pytest.raises(ValueError, match=r"no coefficients for \(-1\)"):
        pac.predict_scores(approx, {"X": NEW[:1], "ward": [-1]})
    with pytest.raises(ValueError, match="pass model="):
        pac.predict_scores(approx.sample(3), {"X": NEW, "ward": labels})
    assert pac.predict_scores(approx.sample(3), {"X": NEW, "ward": labels}, model=model).shape == (1, 3, 6)


def test_rows_or_columns():
    """Where there are as many columns as rows: told apart by what scores, or refused."""
    square = rng.normal(size=(N, N))
    factor = np.tril(rng.normal(size=(N, N))) / N + np.eye(N)
    for held in (True, False):
        with pm.Model():
            rows = pm.Data("X", square) if held else square
            pac.AUCPotential("auc", rows @ pt.dot(factor, pm.Normal("b", shape=N)), y, gamma=20.0)
            approx = pm.fit(method=pac.EP(), progressbar=False)
        if held:
            found = pac.predict_scores(approx, square[:2] + 1.0, summary=True)["mean"]
            np.testing.assert_allclose(found, (square[:2] + 1.0) @ factor @ approx.q.mean, rtol=1e-8)
        else:
            with pytest.raises(
                ValueError, match=r"not known which of them X_new replaces: put the covariates into a pm\.Data"
            ):
                pac.predict_scores(approx, square[:2])


def test_by_the_name_of_the_scores(fits):
    with pm.Model() as model:
        rows, b = pm.Data("X", X), pm.Normal("b", shape=D)
        pm.Deterministic("other", rows @ (b * SIGNS))
        pac.AUCPotential("auc", pm.Deterministic("score", -(rows @ b)), y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    draws = approx.sample(3, random_seed=1)
    b = draws_of(draws)
    for name, truth in (("score", -b @ NEW.T), ("other", (b * SIGNS) @ NEW.T)):
        np.testing.assert_allclose(pac.predict_scores(draws, NEW, var_name=name, model=model).values[0], truth)
    np.testing.assert_allclose(pac.predict_scores(draws, NEW, var_name="score").values[0], -b @ NEW.T)
    mean = pac.predict_scores(approx, NEW, var_name="other", summary=True)["mean"]
    np.testing.assert_allclose(mean, NEW @ (SIGNS * approx.q.mean))
    with pytest.raises(ValueError, match=r"var_name='none' is no pm\.Deterministic"):
        pac.predict_scores(approx, NEW, var_name="none")


def test_scores_that_are_not_affine_have_the_mean_of_their_draws():
    """A probability, by name: no closed form, and no value at the mean of the coefficients."""
    with pm.Model() as model:
        scores = pm.Data("X", X) @ pm.Normal("b", shape=D)
        pm.Deterministic("p", pm.math.sigmoid(3.0 + scores))
        pac.AUCPotential("auc", scores, y, gamma=20.0)
    approx = fit(model)
    options = {"var_name": "p", "random_seed": 1}
    for result, more in ((approx, {"draws": 4000}), (approx.sample(4000, random_seed=1), {"model": model})):
        found = pac.predict_scores(result, NEW, summary=True, **options, **more)
        truth = pac.predict_scores(result, NEW, **options, **more)
        np.testing.assert_allclose(found["mean"], truth.mean(("chain", "draw")), rtol=1e-10)
        assert "mean_score" not in truth.coords
        assert 0 < float(found["mean"].min()) <= float(found["mean"].max()) < 1


WRONG = {
    "too few columns": (NEW[:, :2], {}),
    "too many columns": (np.hstack([NEW, NEW]), {}),
    "a number": (1.0, {}),
    "strings": ([["a", "b", "c"]], {}),
    "nothing": (np.empty((0, 3)), {}),
    "three dimensions": (NEW[None], {}),
    "missing": (np.full((2, 3), np.nan), {}),
    "None": (None, {}),
    "an unknown name": ({"Z": NEW}, {}),
    "no name": ({}, {}),
    "a column twice": (FRAME[["age", "age", "glu"]], {}),
    "another data": (NEW, {"data": "Z"}),
    "another variable": (NEW, {"var_name": "nobody"}),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", WRONG)
def test_errors_are_ours(fits, name, held):
    rows, options = WRONG[name]
    for form in ("negative", "squares"):
        approx = fits[form, held]
        for result, more in ((approx, {}), (approx.sample(2), {"model": approx.model}), (approx.sample(2), {})):
            with pytest.raises(Exception) as caught:  # noqa: PT011 (its type is what is tested)
                pac.predict_scores(result, rows, **options, **more)
            assert type(caught.value) in OURS
            assert len(str(caught.value)) > 20


def test_three_and_four_coefficients(fits):
    approx = fits["plain", "written"]
    with pm.Model() as other:
        pac.AUCPotential("auc", np.hstack([X, X[:, :1]]) @ pm.Normal("b", shape=4), y, gamma=20.0)
    draws, wide = approx.sample(3), np.hstack([NEW, NEW[:, :1]])
    with pytest.raises(ValueError, match="model computes other scores"):
        pac.predict_scores(draws, wide, model=other)
    with pytest.raises(ValueError, match=r"b has shape \(3,\) in these draws, and \(4,\)"):
        pac.predict_scores(dataset_of(draws, "posterior").drop_vars("score_function"), wide, model=other)


def test_thresholds_are_of_one_fit(fits):
    one, other = fits["plain", "written"], fits["negative", "written"]
    with one.model:
        again = pm.fit(method=pac.EP(), progressbar=False)
    threshold = pac.choose_threshold(pac.predict_scores(one, X, summary=True), y, fpr=0.2)
    assert pac.results.Threshold.from_dict(threshold.to_dict()) == threshold
    for scores in (pac.predict_scores(again, NEW, summary=True), pac.predict_scores(one.sample(5), NEW), np.zeros(3)):
        assert len(threshold.apply(scores)) in (3, 6)
    for scores in (pac.predict_scores(other, NEW), pac.predict_scores(other.sample(5), NEW)):
        for use in (threshold.apply, threshold.probability):
            with pytest.raises(ValueError, match="another fit"):
                use(scores)
    with pytest.raises(TypeError, match="not be a table of covariates"):
        threshold.apply(FRAME)


def test_ordered_categories_have_their_order():
    grade = np.array(["mild", "severe", "none"] * 10)
    ordered = pd.Categorical(grade, categories=["none", "mild", "severe"], ordered=True)
    rank = np.array([1.0, 2.0, 0.0] * 10)
    for labels in (ordered, pd.Series(ordered)):
        assert pac.empirical_risk(X[:, 0], labels, ordered=True) == pac.empirical_risk(X[:, 0], rank, ordered=True)
        approx = fit(
            build(FORMS["plain"], "written", lambda s, y=labels: pac.AUCPotential("a", s, y, gamma=9.0, ordered=True))
        )
        assert approx.fitted_to.comparison == "ordered classes"
    two = pd.Categorical(np.where(y, "sick", "well"), categories=["well", "sick"], ordered=True)
    assert pac.empirical_risk(X[:, 0], two) == pac.empirical_risk(X[:, 0], y)
    with pytest.raises(ValueError, match="positive="):
        pac.empirical_risk(X[:, 0], pd.Categorical(np.where(y, "sick", "well")))


def test_dimensions_of_scores_are_known_by_name(fits):
    scores = pac.predict_scores(fits["plain", "written"], X, draws=N, random_seed=1)
    truth = pac.auc_interval(scores, y, over="rows")
    assert pac.auc_interval(scores.transpose("row", "chain", "draw"), y, over="rows") == truth
    turned = scores[0].drop_vars("mean_score").rename(draw="iteration").transpose("row", "iteration")
    curves = [pac.roc(each, y)["tpr_of_draw"] for each in (turned, scores[0].drop_vars("mean_score"))]
    np.testing.assert_allclose(*curves)
    with pytest.raises(ValueError, match="scores has the dimensions"):
        pac.roc(turned.rename(row="patient"), y)


# -- random graphs ---------------------------------------------------------------------------------------------------

K = 4  # groups


@st.composite
def weights(draw, depth=2):
    """A vector of D weights, affine in b (D) and c (2 D)."""
    kinds = ["b", "slice", "constant", "times", "dot", "sum", "joined"] if depth else ["b", "slice"]
    kind = draw(st.sampled_from(kinds))
    numbers = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(D, D)).round(2)
    inner = [draw(weights(depth - 1)) for _ in range({"times": 1, "dot": 1, "sum": 2, "joined": 2}.get(kind, 0))]
    at = draw(st.integers(0, D))
    return {
        "b": lambda b, c: b[::-1] if at else b,
        "slice": lambda b, c: c[at : at + D],
        "constant": lambda b, c: pt.as_tensor(numbers[0]),
        "times": lambda b, c: inner[0](b, c) * numbers[1] - at,
        "dot": lambda b, c: pt.dot(numbers, inner[0](b, c)),
        "sum": lambda b, c: inner[0](b, c) + numbers[0, 0] * inner[1](b, c),
        "joined": lambda b, c: pt.concatenate([inner[0](b, c)[:1], inner[1](b, c)[1:]]),
    }[kind]


@st.composite
def affine_scores(draw):
    """Scores of a matrix Z, a vector v and codes g: sums of products, with or without groups."""
    parts = [draw(weights()) for _ in range(2)]
    scale = draw(st.sampled_from([-1.0, 0.5, 3.0]))
    use = draw(st.sets(st.sampled_from(["vector", "groups", "slopes", "level", "columns"])))

    def scores(Z, v, g, b, c, level):
        found = scale * (Z @ parts[0](b, c))
        if "columns" in use:
            found = found + pt.concatenate([Z[:, 1:], Z[:, :1]], axis=1) @ parts[1](b, c)
        if "vector" in use:
            found = found - v * c[0]
        if "groups" in use:
            found = found + level[g]
        if "slopes" in use:
            found = found + (Z[:, 0] * (2.0 * level - 1.0)[g])
        return found + level[0] if "level" in use else found

    return scores


@settings(max_examples=20, deadline=None, derandomize=True)
@given(scores=affine_scores(), held=st.booleans())
def test_any_affine_graph_is_predicted_as_it_is_written(scores, held):
    v, g = X[:, 1] ** 2, np.arange(N) % K
    with pm.Model() as model:
        data = [pm.Data(name, each) for name, each in (("Z", X), ("v", v), ("g", g))]
        if not held:
            data[0] = pt.as_tensor(X)
        free = pm.Normal("b", shape=D), pm.Normal("c", shape=2 * D), pm.Normal("level", shape=K)
        graph = scores(*data, *free)
        pac.AUCPotential("auc", graph, y, gamma=5.0)
    local = np.random.default_rng(1)
    draws = xr.Dataset(
        {
            name: (("chain", "draw", f"{name}_dim_0"), local.normal(size=(1, 2, size)))
            for name, size in (("b", D), ("c", 2 * D), ("level", K))
        }
    )
    new = {"Z": NEW, "v": local.normal(size=6), "g": local.integers(0, K, size=6)}
    used = {each.name for each in read_scores(model).inputs if each.name}
    if held:
        with model:
            pm.set_data(new)
        compiled = model.compile_fn(
            graph, inputs=list(free), mode="FAST_COMPILE", point_fn=False, on_unused_input="ignore"
        )
        truth = [compiled(*(draws[name].values[0, k] for name in ("b", "c", "level"))) for k in range(2)]
        with model:
            pm.set_data({"Z": X, "v": v, "g": g})
        found = pac.predict_scores(draws, {name: new[name] for name in used}, model=model)
        np.testing.assert_allclose(found.values[0], truth, rtol=1e-9, atol=1e-9)
    elif used:
        with pytest.raises(ValueError, match=r"for which X_new has no values: put .* into pm\.Data"):
            pac.predict_scores(draws, {name: new[name] for name in used}, model=model)
    else:
        found = pac.predict_scores(draws, NEW, model=model)
        theta = [{name: draws[name].values[0, k] for name in draws} for k in range(2)]
        truth = [
            scores(pt.as_tensor(NEW), None, None, *(pt.as_tensor(t[n]) for n in ("b", "c", "level"))).eval()
            for t in theta
        ]
        np.testing.assert_allclose(found.values[0], truth, rtol=1e-9, atol=1e-9)


def learned_horseshoe():
    local = pm.HalfCauchy("local", 1.0, shape=D)
    return pm.Normal("b", 0.0, pm.HalfNormal("tau", 0.5) * local, shape=D)


@pytest.mark.parametrize(
    "prior", [learned_horseshoe, lambda: pac.SpikeSlab("b", p=pm.Beta("p", 1.0, 1.0), shape=D)], ids=["horseshoe", "p"]
)
def test_draws_of_hyper_parameters_agree_with_their_model(prior):
    """Variables that only priors depend on are no part of the score."""
    with pm.Model() as model:
        rows = pm.Data("X", X)
        pac.AUCPotential("auc", rows @ prior(), y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    draws = approx.sample(50, random_seed=1)
    expected = draws_of(draws) @ NEW.T
    for options in ({}, {"model": model}):
        np.testing.assert_allclose(
            pac.predict_scores(draws, NEW, **options).values[0], expected, rtol=1e-10, atol=1e-12
        )

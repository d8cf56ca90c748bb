import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_pacauc as pac
from pymc_pacauc.comparison.censored import survival_curve

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

rng = np.random.default_rng(2)
X = rng.normal(size=(60, 3))
y = X[:, 0] + rng.normal(size=60) > 0


@pytest.fixture(scope="module")
def fitted():
    with pm.Model(coords={"covariate": ["a", "b", "c"]}) as model:
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        step = pac.TemperingSMC(particles=300)
        idata = pm.sample(300, step=step, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    return model, approx, idata


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def draw(axes):
    """Rendering finds what plotting does not."""
    figure = np.atleast_1d(axes).ravel()[0].figure
    figure.canvas.draw()
    return axes


def test_precision_recall(fitted):
    curve = pac.precision_recall(pac.predict_scores(fitted[1], X, draws=50, random_seed=1), y)
    axes = draw(pac.plots.plot_precision_recall(curve))
    assert axes.get_legend().get_texts()[0].get_text().startswith(f"{curve.attrs['average_precision']:.3f} (")
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), curve["precision"])
    named = draw(pac.plots.plot_precision_recall({"EP": curve, "x": pac.precision_recall(X[:, 0], y)}))
    assert [text.get_text()[:2] for text in named.get_legend().get_texts()] == ["EP", "x:"]
    grouped = pac.plots.plot_precision_recall(pac.precision_recall(X[:, 0], y, groups=np.arange(60) // 2))
    assert "over groups" in grouped.get_legend().get_title().get_text()
    with pytest.raises(TypeError, match="precision_recall"):
        pac.plots.plot_precision_recall(pac.roc(X[:, 0], y))


def test_roc(fitted):
    _, approx, idata = fitted
    scores = pac.predict_scores(approx, X, draws=50, random_seed=1)
    curve = pac.roc(scores, y)
    assert len(draw(pac.plots.plot_roc(curve)).lines) == 2
    axes = draw(pac.plots.plot_roc({"EP": curve, "SMC": pac.roc(pac.predict_scores(idata, X), y)}))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[0].startswith(f"EP: {curve.attrs['auc']:.3f} (")
    assert texts[1].startswith("SMC")
    assert axes.get_legend().get_title().get_text() == "AUC of the mean score\n(90% over rows)"
    _, given = plt.subplots()
    assert pac.plots.plot_roc(pac.roc(X[:, 0], y), ax=given) is given


def test_scores(fitted):
    scores = pac.predict_scores(fitted[1], X, draws=50, random_seed=1)
    threshold = pac.choose_threshold(scores, y, fpr=0.2)
    axes = draw(pac.plots.plot_scores(scores, y, threshold=threshold))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == [f"negative ({(~y).sum()} rows)", f"positive ({y.sum()} rows)"]
    assert texts[0] == "median"
    assert "FPR" in texts[1]
    assert axes.get_xlabel() == "mean score"
    assert axes.lines[-1].get_xdata()[0] == threshold.value
    assert draw(pac.plots.plot_scores(X[:, 0], y, threshold=0.3)).get_xlabel() == "score"


def test_scores_of_ordered_classes():
    score = X[:, 0]
    classes = np.digitize(score + rng.normal(size=60), [-0.5, 0.5]) * 2
    axes = draw(pac.plots.plot_scores(score, classes, ordered=True, threshold=0.1))
    assert axes.get_title() == f"concordance {1 - pac.empirical_risk(score, classes, ordered=True):.3f}"
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == [f"{label} ({np.sum(classes == label)} rows)" for label in (0, 2, 4)]
    medians = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
    np.testing.assert_allclose(medians, [np.median(score[classes == label]) for label in (0, 2, 4)])
    _, given = plt.subplots()
    assert pac.plots.plot_scores(score, classes, ordered=True, ax=given) is given
    with pytest.raises(ValueError, match="larger value of y"):
        pac.plots.plot_scores(score, classes, ordered=True, positive=2)
    with pytest.raises(ValueError, match="scores has 59 observations"):
        pac.plots.plot_scores(score[1:], classes, ordered=True)


def test_survival():
    score, event = X[:, 0].round(1), np.arange(60) % 4 > 0
    time = np.exp(-score + 0.5 * rng.normal(size=60))
    axes = draw(pac.plots.plot_survival(score, time, event))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    cuts = np.quantile(score, [1 / 3, 2 / 3])
    highest = score > cuts[1]
    assert texts[2] == f"group 3 (highest): {(event & highest).sum()} events, {highest.sum()} rows"
    assert axes.get_legend().get_title().get_text() == (
        f"by score\n(concordance {1 - pac.concordance_risk(score, time, event):.3f})"
    )
    curve = survival_curve(time[highest], event[highest])
    [shown] = [line for line in axes.lines if line.get_label() == texts[2]]
    np.testing.assert_allclose(shown.get_ydata()[1:], curve.survival)
    _, given = plt.subplots()
    assert pac.plots.plot_survival(np.stack([score, score]), time, event, groups=5, ax=given) is given
    with pytest.raises(ValueError, match="groups=3 is too many: 1 would be empty"):
        pac.plots.plot_survival(np.sign(score), time, event)
    with pytest.raises(ValueError, match="groups must be an integer from 2"):
        pac.plots.plot_survival(score, time, event, groups=1)
    with pytest.raises(ValueError, match="scores has 59 observations"):
        pac.plots.plot_survival(score[1:], time, event)


def test_concordance_along_gamma():
    time = np.exp(-X[:, 0] + 0.5 * rng.normal(size=60))
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.ConcordancePotential("c", X @ theta, time, np.arange(60) % 4 > 0, gamma=30.0)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(100, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    assert draw(pac.plots.plot_gamma_path(idata))[0].get_ylabel() == "concordance"


def test_marginals(fitted):
    _, approx, idata = fitted
    axes = draw(pac.plots.plot_marginals(approx, idata))
    assert [a.get_title() for a in axes] == ["theta[a]", "theta[b]", "theta[c]"]


def test_gamma_path(fitted):
    model, _, idata = fitted
    selection = pac.select_gamma(model, [3.0, 10.0, 30.0], folds=3)
    top, bottom = draw(selection.plot())
    assert top.get_ylabel() == "AUC"
    assert top.get_legend() is not None
    assert bottom.get_xscale() == "log"
    draw(pac.plots.plot_gamma_path(pac.select_gamma(model, [3.0, 30.0], criterion="certificate")))
    draw(pac.plots.plot_gamma_path(idata))
    _, two = plt.subplots(2)
    assert pac.plots.plot_gamma_path(selection, ax=two)[0] is two[0]
    with pytest.raises(ValueError, match=r"ax must have 2 axes.* it has 1"):
        pac.plots.plot_gamma_path(selection, ax=two[0])


def test_tempering(fitted):
    model, approx, idata = fitted
    axes = draw(pac.plots.plot_tempering(idata))
    assert [len(a.lines) for a in axes] == [2, 2, 2]
    with model:
        step = pac.TemperingSMC(particles=300, start=approx)
        bridged = pm.sample(100, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    assert "from the fit" in draw(pac.plots.plot_tempering(bridged))[0].get_ylabel()


def test_inclusion():
    probabilities = xr.DataArray([0.9, 0.2, 0.6], dims="gene", coords={"gene": ["u", "v", "w"]})
    axes = draw(pac.plots.plot_inclusion(probabilities))
    assert [text.get_text() for text in axes.get_yticklabels()] == ["u", "w", "v"]
    axes = draw(pac.plots.plot_inclusion(np.linspace(0, 1, 50)))
    assert axes.get_title() == "40 largest of 50"
    with pytest.raises(ValueError, match=r"numbers in \[0, 1\]"):
        pac.plots.plot_inclusion([0.5, 1.5])


def test_spike_and_slab_figures():
    with pm.Model(coords={"covariate": ["a", "b", "c"]}):
        theta = pac.SpikeSlab("theta", p=0.4, v0=1e-3, dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    labels = [text.get_text() for text in draw(pac.plots.plot_inclusion(approx)).get_yticklabels()]
    assert labels[0] == "a"
    draw(pac.plots.plot_marginals(approx))
    path = pac.regularization_path((X, y), v0=[1e-3, 1e-2, 1e-1], gamma=30.0, p=0.4)
    axes = draw(pac.plots.plot_regularization_path(path))
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize("score", [[0.0, 1e-300, 1.0, 2.0], [0.0, 5e-324, 0.0, 0.0]])
def test_scores_that_hardly_differ(score):
    assert len(draw(pac.plots.plot_scores(np.array(score), [1, 1, 0, 0])).lines) == 6

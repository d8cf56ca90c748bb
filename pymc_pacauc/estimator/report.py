"""HTML report of a fitted estimator on one self-contained page, with figures.

Measures of ranking are of rows left out of the fit, by the cross-fitted scores that probabilities are computed from.
The page is made from :class:`Figures`, a few hundred numbers, which a pickle keeps in place of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from html import escape
from importlib.metadata import version
from io import StringIO
from platform import python_version
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import ndtri
from sklearn.metrics import precision_score, recall_score

import pymc_pacauc
from pymc_pacauc.analysis.evaluate import auc_interval, roc
from pymc_pacauc.analysis.plots.canvas import BLUE, GREY, VERMILION
from pymc_pacauc.analysis.plots.ranking import MOST_SHOWN, draw_shape, plot_roc
from pymc_pacauc.analysis.summary import coefficient_table
from pymc_pacauc.comparison.censored import survival_curve
from pymc_pacauc.comparison.folds import strata_of
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.numerics import FloatArray, tails
from pymc_pacauc.problem.additive_features import AdditiveFeatures
from pymc_pacauc.tune.gamma import GammaChoice

CI_PROB = 0.9  # of all intervals and bands on the page, as by default everywhere: a convention
CURVES = ("fpr", "tpr", "tpr_lower", "tpr_upper")  # what is kept of a ROC curve

STYLE = """
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; margin: 0 auto; padding: 1.5rem;
       max-width: 72rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p, ul { max-width: 46rem; } .soft, .facts span, figcaption { color: #5b6875; font-size: .9rem; }
.facts, .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem;
       margin: 1rem 0; }
.facts div { border: 1px solid #dfe4ea; border-radius: .5rem; padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.25rem; }
.figures { grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; max-width: 34rem; } figure svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #dfe4ea; vertical-align: top; }
th:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere; min-width: 5rem; }
@media (max-width: 40rem) { table { font-size: .75rem; width: 100%; } th, td { padding: .25rem .2rem; } }
"""


@dataclass(frozen=True, eq=False)
class Boundary:
    """Rows above a boundary between classes against the others, by scores of rows left out.

    Attributes
    ----------
    name : str
        Name of the positive class or classes.
    share : float
        Share of positive rows.
    roc : array of shape (4, grid)
        False positive rate, true positive rate, and the ends of its band, of rows left out.
    measures : dict of str to float
        Their AUC, with the ends of its interval: attributes of :func:`~pymc_pacauc.roc`.
    bins : array of shape (3, bins)
        Mean probability, share of positives, and number of rows.
    cuts : array of shape (rates, 5)
        Probability of the threshold, sensitivity, specificity, and the predictive values.
    weighted : bool
        Whether rows, or their classes, have weights: probabilities are then shares of the weight.
    """

    name: str
    share: float
    roc: FloatArray
    measures: dict[str, float]
    bins: FloatArray
    cuts: FloatArray
    weighted: bool


@dataclass(frozen=True, eq=False)
class Figures:
    """Numbers that a report shows of one score besides its posterior.

    Attributes
    ----------
    rows, pairs : int
        Training rows, and pairs compared.
    kind : str
        Kind of comparison, in words.
    strata : bool
        Whether only rows of one stratum are compared.
    by : str
        How gamma was chosen.
    held_out : float
        AUC or concordance of rows left out, NaN where none were.
    boundaries : tuple of Boundary
        One for two classes, one less than there are ordered classes, none for censored times.
    survival : tuple of array
        Kaplan-Meier curve, times and survival, of each third of the scores of rows left out; empty for classes.
    events : int
        Events of censored times.
    """

    rows: int
    pairs: int
    kind: str
    strata: bool
    by: str
    held_out: float = np.nan
    boundaries: tuple[Boundary, ...] = ()
    survival: tuple[FloatArray, ...] = ()
    events: int = 0


def with_figures(estimator: Any, score: Any) -> Any:
    """Return the score with its figures, computed if it has none yet."""
    return score if score.figures is not None else replace(score, figures=figures_of(estimator, score))


def figures_of(estimator: Any, score: Any) -> Figures:
    """Compute the figures of a score whose rows are at hand."""
    posterior = score.posterior
    pairs, groups = posterior.fit.problem.pairs, posterior.record.groups
    strata = pairs.kind == "two classes" and len(pairs.blocks) > 1 and np.unique(strata_of(pairs)).size > 1
    kind = pairs.kind + " within strata" * strata + ", weighted" * pairs.weighted
    kind += f", in {groups} groups that are the independent units" if groups else ""
    found = Figures(posterior.fit.problem.n, pairs.n_pairs, kind, strata, _choice(estimator, posterior.choice))
    if score.held_out is None:
        return found
    found = replace(found, held_out=1.0 - float(pair_risk(score.held_out[None], pairs)[0]))
    if score.maps:
        names = enumerate(_names_above(estimator, score))
        return replace(found, boundaries=tuple(_boundary(score, k, name) for k, name in names))
    third = np.digitize(score.held_out, np.quantile(score.held_out, [1 / 3, 2 / 3]))
    survival = tuple(_survival(score.time[third == k], score.outcome[third == k]) for k in range(3))
    return replace(found, survival=survival, events=int((score.outcome == 1).sum()))


def _names_above(estimator: Any, score: Any) -> list[str]:
    """Name the positive classes, for each boundary."""
    classes = [str(each) for each in estimator.classes_]
    if len(estimator.scores_) > 1:
        return [classes[next(k for k, each in enumerate(estimator.scores_) if each is score)]]
    return [classes[1]] if len(classes) == 2 else [f"above {name}" for name in classes[:-1]]


def _boundary(score: Any, k: int, name: str) -> Boundary:
    positive, weights = score.outcome > k, score.weights  # as in the regression that the probabilities are
    options = {"ci_prob": CI_PROB, "groups": score.posterior.groups}
    curves = roc(score.held_out, positive, **options)
    probability = score.maps[k](score.held_out)
    bins = []
    for rows in np.array_split(np.argsort(probability, kind="stable"), min(10, positive.size)):
        means = (np.average(values[rows], weights=weights[rows]) for values in (probability, positive))
        bins.append([*means, rows.size])
    cuts = []
    for rate in (0.05, 0.1, 0.2, 0.5):  # false positive rates
        at = np.quantile(probability[~positive], 1.0 - rate)
        sides = [(positive, probability > at), (~positive, probability <= at)]
        predictive = [precision_score(*side, zero_division=np.nan) for side in sides]
        cuts.append([at, *(recall_score(*side) for side in sides), *predictive])
    weighted = bool((weights != weights[0]).any())
    lines = np.array([curves[name] for name in CURVES])
    # Fits of the folds share rows: with 10 columns of 100 rows 83 % of the intervals without new rows hold the AUC.
    said = auc_interval(score.held_out, positive, new_rows=(score.folds - 1) * positive.size, **options)
    measures = {name: float(curves.attrs[name]) for name in ("auc", "ci_prob", "n_groups")}
    measures |= {"auc_lower": said.lower, "auc_upper": said.upper}
    return Boundary(name, positive.mean(), lines, measures, np.array(bins).T, np.array(cuts), weighted)


def _survival(time: FloatArray, event: Any) -> FloatArray:
    """Compute the Kaplan-Meier curve from time 0 on, shape (2, steps), of 200 steps at most."""
    curve = survival_curve(time, event)
    kept = np.unique(np.linspace(0, curve.time.size - 1, min(200, curve.time.size)).astype(int))
    return np.array([np.append(0.0, curve.time[kept]), np.append(1.0, curve.survival[kept])])


def _choice(estimator: Any, choice: GammaChoice | None) -> str:
    """Say how gamma was chosen."""
    if choice is None:
        others = {"certificate": "by the certificate", "coverage": "by the coverage of credible sets"}
        return others.get(str(estimator.gamma), "given")
    return "by folds" if choice.rows == choice.folds.shape[1] else f"by folds of {choice.rows} of the rows"


# -- the page --------------------------------------------------------------------------------------------------------


def report_page(estimator: Any, title: str) -> str:
    """Write the page of a fitted estimator."""
    scores, parts = [with_figures(estimator, each) for each in estimator.scores_], []
    if len(scores) > 1 and not any(np.isnan(each.figures.held_out) for each in scores):
        total = np.mean([each.figures.held_out for each in scores])
        said = "Hand and Till's M of the linear scores of rows left out: the mean AUC of two classes"
        parts.append(_tiles([(said, f"{total:.3f}")]))
    for k, score in enumerate(scores):
        heading = "" if len(scores) == 1 else f"<h2>{escape(str(estimator.classes_[k]))} against the rest</h2>"
        parts.append(heading + _part(estimator, score))
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    made = f"{date.today().isoformat()}, pymc_pacauc {pymc_pacauc.__version__}, {versions}, Python {python_version()}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<p class="soft">{escape(str(estimator))}<br>{escape(made)}</p>'
        f"{''.join(parts)}</body></html>"
    )


def _part(estimator: Any, score: Any) -> str:
    posterior, figures = score.posterior, score.figures
    facts = _facts(figures, posterior.record.groups)
    certified, words = _certificate(estimator, score)
    if certified is not None and certified.auc > 0.5:
        unit = "groups" if certified.groups else "rows"
        condition = f"certified for a draw, {1 - certified.epsilon:.0%}, if {unit} are independent: see below"
        facts.append((condition, f"≥ {certified.auc:.3f}"))
    drawings = [draw(each) for each in figures.boundaries for draw in (_roc, _calibration)]
    drawings += [_kaplan_meier(figures)] if figures.survival else []
    kind = f"{figures.kind[0].upper()}{figures.kind[1:]}"
    what = f"{kind}: {figures.rows} rows, {estimator.n_features_in_} columns, {figures.pairs} pairs."
    sections = [
        f"<p>{escape(what)}</p>{_tiles(facts)}{_side_by_side(drawings)}",
        *map(_thresholds, figures.boundaries),
        _coefficients(estimator, posterior),
        f"<h2>Certificate</h2>{words}",
        f"<h2>How it was fitted</h2>{_fitted(posterior, figures)}",
    ]
    return "".join(sections)


def _facts(figures: Figures, groups: int) -> list[tuple[str, str]]:
    """Write the headline: how well rows left out are ranked, and how many are positive."""
    left_out = f"{figures.held_out:.3f}"
    if figures.survival:
        events = f"events among {figures.rows} rows ({figures.events / figures.rows:.0%})"
        return [("concordance of rows left out", left_out), (events, str(figures.events))]
    facts = []
    if len(figures.boundaries) > 1:
        facts.append(("share of pairs of rows left out that are in order", left_out))
    elif figures.strata:
        facts.append(("AUC within strata, of rows left out", left_out))
    which = "AUC over all strata" if figures.strata else "AUC"
    unit = "groups" if groups else "rows"
    for each in figures.boundaries:
        words = f"its {CI_PROB:.0%} interval over {unit}, widened because fits of the folds share {unit}"
        facts += [
            (f"{which} of rows left out, positive: {each.name}", f"{each.measures['auc']:.3f}"),
            (words, "{auc_lower:.3f} to {auc_upper:.3f}".format_map(each.measures)),
            (f"of the rows are {each.name}", f"{each.share:.1%}"),
        ]
    return facts


# -- figures ---------------------------------------------------------------------------------------------------------


def _roc(each: Boundary) -> str:
    columns = {name: ("fpr", line) for name, line in zip(CURVES, each.roc, strict=True)}
    said = f"ROC curve of rows left out, positive: {each.name}; area {each.measures['auc']:.3f}. Every row is scored by"
    said += f" a posterior that has not seen its fold. Shaded: {CI_PROB:.0%} at each rate."
    return _figure(lambda axes: plot_roc(xr.Dataset(columns, attrs=each.measures), ax=axes), said)


def _calibration(each: Boundary) -> str:
    def draw(axes: Any) -> None:
        probability, share, rows = each.bins
        half = ndtri(tails(CI_PROB)[1]) * np.sqrt(np.maximum(share * (1.0 - share), 0.25 / rows) / rows)
        axes.errorbar(probability, share, half, fmt="o", color=BLUE, linewidth=1)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
        axes.set(xlabel="probability", ylabel=f"share of {each.name}", xlim=(0, 1), ylim=(0, 1), aspect="equal")

    text = f"Calibration: rows left out in {each.bins.shape[1]} bins by their probability of {each.name}, and the share"
    return _figure(draw, f"{text} that were{', by their weights' * each.weighted}.")


def _kaplan_meier(figures: Figures) -> str:
    def draw(axes: Any) -> None:
        third = {"low": BLUE, "middle": GREY, "high": VERMILION}
        for curve, (name, color) in zip(figures.survival, third.items(), strict=True):
            axes.step(*curve, where="post", color=color, label=name)
        axes.set(xlabel="time", ylabel="share without the event", ylim=(0, 1.02))
        axes.legend(frameon=False, title="risk score", loc="upper right")

    said = "Every row is scored by a posterior that has not seen its fold; a high score means an early event."
    return _figure(draw, f"Kaplan-Meier curves of thirds of the rows by risk score. {said}")


def _figure(draw: Callable[[Any], Any], caption: str, height: float = 4.6) -> str:
    """Draw an inline SVG, without pyplot, so that no figure of the user's is touched."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("A report has figures, which need matplotlib: pip install 'pymc-pacauc[plots]'.") from None
    figure = Figure(figsize=(5.2, height), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    page = StringIO()
    with rc_context({"svg.hashsalt": "pymc_pacauc"}):  # the same page every time
        figure.savefig(page, format="svg", metadata={"Date": None})
    drawing = page.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


# -- tables and words ------------------------------------------------------------------------------------------------


def _tiles(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
    return f'<div class="facts">{cells}</div>'


def _side_by_side(drawings: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(drawings)}</div>' if drawings else ""


def _table(heading: str, said: str, table: pd.DataFrame, form: str = ".3f") -> str:
    """Write a heading, a paragraph and a table; ``form`` is the format of its numbers."""
    cells = table.to_html(border=0, na_rep="-", float_format=f"{{:{form}}}".format)
    return f"<h2>{heading}</h2><p>{said}</p>{cells.replace('_', '_<wbr>')}"  # long names break there


def _thresholds(each: Boundary) -> str:
    name = escape(each.name)
    said = f"Calling rows left out {name}; predictive values (PPV, NPV) are those at the share of {name} in these rows."
    at, *shares = each.cuts.T
    above = pd.Index([f"{probability:.3f}" for probability in at], name="probability above")
    measures = ("sensitivity", "specificity", "PPV", "NPV")
    return _table(f"Thresholds for {name}", said, pd.DataFrame(dict(zip(measures, shares, strict=True)), above), ".1%")


def _coefficients(estimator: Any, posterior: Any) -> str:
    if hasattr(posterior, "parts"):
        columns = {"weight": posterior.weights, "gamma": [part.record.gamma for part in posterior.parts]}
        said = "The score is the weighted mean of these, each in standard units; weights by rows left out."
        linear, *others = [_coefficients(estimator, part) for part in posterior.parts]
        parts = pd.DataFrame(columns, pd.Index(posterior.names, name="prior of the part"))
        return _table("Parts", said, parts, ".4g") + "".join(others) + linear
    if isinstance(posterior.features, AdditiveFeatures):
        return _shapes(estimator, posterior)
    if posterior.features is not None:
        scales = ", ".join(f"{value:.3g}" for value in posterior.features.lengthscale[:20])
        return f"<h2>Kernel</h2><p>Gaussian process, {posterior.features.rank} features, lengthscales {scales}.</p>"
    scale = posterior.columns.scale
    table = coefficient_table(estimator, posterior, CI_PROB, scale).round(6)  # rounding errors change no drawing
    shown = table.iloc[np.argsort(-np.abs(posterior.coef * scale), kind="stable")[:MOST_SHOWN]]
    words = ["Coefficients of columns in units of their standard deviation."] if (scale != 1.0).any() else []
    words.append("Scores have no unit: only ratios of coefficients are meaningful.")
    words.append(
        "Intervals are calibrated: their coverage is about nominal, whatever gamma is."
        if posterior.calibrated
        else "Intervals are those of the posterior at this gamma, not calibrated."
    )
    words += [f"The {len(shown)} largest of {len(table)}."] if len(table) > len(shown) else []

    def draw(axes: Any) -> None:
        axes.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":")
        half = ndtri(tails(CI_PROB)[1]) * shown["sd"]
        axes.errorbar(shown["mean"], range(len(shown)), xerr=half, fmt="o", markersize=4, linewidth=1, color=BLUE)
        axes.set(yticks=range(len(shown)), yticklabels=[name[:30] for name in shown.index], xlabel="coefficient")
        axes.invert_yaxis()

    drawing = _figure(draw, f"Coefficients with their {CI_PROB:.0%} intervals.", height=1.2 + 0.2 * len(shown))
    return _table("Coefficients", " ".join(words), shown) + _side_by_side([drawing])


def _shapes(estimator: Any, posterior: Any) -> str:
    found = zip(estimator._feature_names(), posterior.shapes(), strict=True)
    shapes = sorted(found, key=lambda each: -np.ptp(each[1][1]))
    shown = shapes[:12]
    options = [{"name": name, "shape": shape, "ci_prob": CI_PROB} for name, shape in shown]
    drawings = [_figure(partial(draw_shape, **each), f"{each['name']}, {CI_PROB:.0%}") for each in options]
    said = f"What each column adds to the score, of {len(shapes)} the {len(shown)} that vary most."
    return f"<h2>Functions of the columns</h2><p>{said}</p>{_side_by_side(drawings)}"


def _certificate(estimator: Any, score: Any) -> tuple[Any, str]:
    try:
        certified = estimator._certificate(score)
    except AttributeError as error:
        return None, f"<p>{escape(str(error))}</p>"
    measure = "an AUC" if certified.comparison == "two classes" else "a concordance"
    said = (
        f"With probability {1 - certified.epsilon:.4g} over the drawing of the data, a score drawn from this posterior "
        f"has {measure} of at least {certified.auc:.4f} on new rows. A random ranking has 0.5."
    )
    return certified, f"<p>{escape(said)}</p>{certified._repr_html_()}"


def _fitted(posterior: Any, figures: Figures) -> str:
    fit, record = posterior.fit, posterior.record
    state = "converged" if fit.converged else "did NOT converge"
    acted = [f"{name.replace('_', ' ')} {count}" for name, count in vars(fit.interventions).items() if count]
    lines = [
        f"gamma = {record.gamma:.4g} ({figures.by}), log evidence {posterior.result.evidence.estimate:.2f}.",
        f"{fit.method} {state} in {fit.sweeps} sweeps" + (f" ({', '.join(acted)})." if acted else "."),
    ]
    if posterior.shrinkage is not None:
        lines.append(f"Prior covariance at shrinkage {posterior.shrinkage:g}, by evidence.")
    if record.method == "TemperingSMC":
        lines.append(f"Draws by tempering SMC, log evidence {posterior.result.evidence}.")
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"

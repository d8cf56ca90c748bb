"""A fitted estimator on one page: HTML that needs nothing else, figures included.

What it says of ranking it says of rows that were left out of the fit, by the cross-fitted scores that the probabilities
are made of too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_pacauc.estimator.gamma import CertifiedGamma
from pymc_pacauc.tune.gamma import GammaChoice

MOST_COEFFICIENTS = 40  # the largest, in units of their columns
CI_PROB = 0.9

STYLE = """
:root { color-scheme: light; --ink: #1c2733; --soft: #5b6875; --line: #dfe4ea; --blue: #0072B2; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink); background: #fff;
       margin: 0 auto; padding: 1.5rem clamp(1rem, 4vw, 3rem); max-width: 72rem; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { max-width: 46rem; } .soft { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.facts div { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: .85rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.2rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; } figcaption { color: var(--soft); font-size: .9rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; overflow-wrap: anywhere;
       min-width: 5rem; } td.bar { min-width: 12rem; width: 40%; }
.range { position: relative; height: .9rem; }
.range i { position: absolute; top: .4rem; height: 2px; background: var(--blue); }
.range u { position: absolute; top: .15rem; width: .6rem; height: .6rem; margin-left: -.3rem; border-radius: 50%;
           background: var(--blue); }
.range s { position: absolute; top: 0; bottom: 0; width: 1px; background: #b6c0ca; }
"""


def report_page(estimator: Any, title: str) -> str:
    """The page of a fitted estimator."""
    scores = estimator.scores_
    parts = []
    for k, score in enumerate(scores):
        name = None if len(scores) == 1 else str(estimator.classes_[k])
        heading = "" if name is None else f"<h2>{escape(name)} against the rest</h2>"
        parts.append(heading + _part(estimator, score))
    posterior = scores[0].posterior
    problem = posterior.fit.problem
    what = f"{problem.n} rows, {estimator.n_features_in_} columns, {problem.pairs.n_pairs} pairs compared"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<p class="soft">{escape(str(estimator))}<br>{escape(problem.pairs.kind.capitalize())}: {what}.</p>'
        f"{''.join(parts)}</body></html>"
    )


def _part(estimator: Any, score: Any) -> str:
    posterior = score.posterior
    fit = posterior.fit
    facts = [("gamma", f"{fit.problem.gamma:.4g}"), ("log evidence", f"{posterior.log_evidence:.2f}")]
    figures = []
    classified = hasattr(score, "held_out")
    if classified and len(score.maps) == 1:
        curves, figure = _roc(score)
        interval = f"{curves.attrs['auc_lower']:.3f} to {curves.attrs['auc_upper']:.3f}"
        facts = [("AUC of rows left out", f"{curves.attrs['auc']:.4f}"), (f"{CI_PROB:.0%} over rows", interval), *facts]
        figures.append(figure)
    certified, words = _certificate(estimator, score)
    if certified is not None:
        facts.append((f"certified AUC of a draw, {1 - certified.epsilon:.0%}", f"{certified.auc:.4f}"))
    if isinstance(posterior.choice, GammaChoice | CertifiedGamma):
        figures.append(_gamma(posterior.choice))
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
    return (
        f'<div class="facts">{cells}</div><div class="figures">{"".join(figures)}</div>'
        f"{_coefficients(estimator, posterior)}<h2>Certificate</h2>{words}<h2>Convergence</h2>{_convergence(posterior)}"
    )


# -- figures ---------------------------------------------------------------------------------------------------------


def _roc(score: Any) -> tuple[Any, str]:
    from pymc_pacauc.analysis.evaluate import roc
    from pymc_pacauc.analysis.plots.ranking import plot_roc

    curves = roc(score.held_out, score.place, ci_prob=CI_PROB)
    text = "Each row is scored by a posterior that has not seen its fold; the band is over rows."
    return curves, _figure(lambda axes: plot_roc(curves, ax=axes), "ROC curve of rows left out. " + text)


def _gamma(choice: GammaChoice | CertifiedGamma) -> str:
    from pymc_pacauc.analysis.plots.canvas import BLUE, GREY, VERMILION

    def draw(axes: Any) -> None:
        if isinstance(choice, CertifiedGamma):
            gammas = [each.gamma for each in choice.certificates]
            axes.plot(gammas, [each.auc for each in choice.certificates], "o-", color=BLUE, label="certified")
        else:
            gammas = [each.gamma for each in choice.candidates]
            auc = np.array([each.auc.mean() for each in choice.candidates])
            spread = np.array([np.sqrt(e.auc.var(axis=1, ddof=1).mean() / e.auc.shape[1]) for e in choice.candidates])
            axes.fill_between(gammas, auc - spread, auc + spread, color=BLUE, alpha=0.15, linewidth=0)
            axes.plot(gammas, auc, "o-", color=BLUE, label="mean score")
            of_draw = [each.expected_auc.mean() for each in choice.candidates]
            axes.plot(gammas, of_draw, "s--", color=VERMILION, label="a draw")
        axes.axvline(gammas[choice.chosen], color=GREY, linewidth=0.8, linestyle=":")
        axes.set(xscale="log", xlabel="gamma", ylabel="AUC")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, title="certified AUC" if isinstance(choice, CertifiedGamma) else "held-out AUC")

    if isinstance(choice, CertifiedGamma):
        return _figure(draw, "How gamma was chosen: by the certificate (dotted: the choice).")
    by = "" if choice.rows == choice.folds.shape[1] else f" By {choice.rows} of the rows; gammas are those for all."
    legend = "dotted: the mean of those near the best; shaded: one standard error over folds"
    return _figure(draw, f"How gamma was chosen ({legend}).{by}")


def _figure(draw: Any, caption: str) -> str:
    """An inline SVG, drawn without pyplot, so that no figure of the user's is touched."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("A report has figures, which need matplotlib: pip install 'pymc-pacauc[plots]'.") from None
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    FigureCanvasSVG(figure)
    draw(figure.subplots())
    page = StringIO()
    figure.savefig(page, format="svg", metadata={"Date": None})
    drawing = page.getvalue()
    return f"<figure>{drawing[drawing.index('<svg') :]}<figcaption>{escape(caption)}</figcaption></figure>"


# -- tables and words ------------------------------------------------------------------------------------------------


def _coefficients(estimator: Any, posterior: Any) -> str:
    if posterior.features is not None:
        scales = ", ".join(f"{value:.3g}" for value in posterior.features.lengthscale[:20])
        return f"<h2>Kernel</h2><p>Gaussian process, {posterior.features.rank} features, lengthscales {scales}.</p>"
    scale = posterior.columns.scale
    mean, sd = posterior.coef * scale, posterior.coef_sd * scale
    names = estimator._feature_names()
    shown = np.argsort(-np.abs(mean), kind="stable")[:MOST_COEFFICIENTS]
    half = -ndtri(0.5 * (1.0 - CI_PROB)) * sd
    reach = float(np.abs(np.concatenate([mean - half, mean + half])).max()) or 1.0
    included = posterior.fit.problem.spikes is not None
    inclusion = posterior.fit.inclusion_probability if included else mean
    header = ["column", "mean", f"{CI_PROB:.0%} interval", "P(> 0)", *(["P(included)"] if included else []), ""]
    rows = []
    for k in shown:
        low, high = mean[k] - half[k], mean[k] + half[k]
        cells = [names[k], f"{mean[k]:+.3f}", f"{low:+.3f} to {high:+.3f}", f"{ndtr(mean[k] / sd[k]):.3f}"]
        cells += [f"{inclusion[k]:.3f}"] if included else []
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells) + _range(low, mean[k], high, reach))
    more = f" The {len(shown)} largest of {len(names)}." if len(names) > len(shown) else ""
    return (
        "<h2>Coefficients</h2><p>Of columns in units of their standard deviation"
        f" (a score has no unit: only proportions mean something).{more}</p>"
        if (posterior.columns.scale != 1.0).any()
        else f"<h2>Coefficients</h2><p>A score has no unit: only proportions mean something.{more}</p>"
    ) + _table(header, rows)


def _range(low: float, middle: float, high: float, reach: float) -> str:
    at = [50.0 + 48.0 * value / reach for value in (low, middle, high)]
    return (
        f'<td class="bar"><div class="range"><s style="left:50%"></s>'
        f'<i style="left:{at[0]:.2f}%;width:{at[2] - at[0]:.2f}%"></i><u style="left:{at[1]:.2f}%"></u></div></td>'
    )


def _table(header: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _certificate(estimator: Any, score: Any) -> tuple[Any, str]:
    try:
        certified = estimator._certificate(score)
    except AttributeError as error:
        return None, f"<p>{escape(str(error))}</p>"
    said = (
        f"With probability {1 - certified.epsilon:g} over the drawing of the data, a score drawn from this posterior "
        f"has an AUC of at least {certified.auc:.4f} on new rows ({certified.bound}; on the training rows it is "
        f"{certified.empirical_auc:.4f}, the posterior is {certified.divergence:.2f} nats from the prior)."
    )
    conditions = "".join(f"<li>{escape(sentence)}</li>" for sentence in certified.assumptions)
    return certified, f"<p>{escape(said)}</p><ul>{conditions}</ul>"


def _convergence(posterior: Any) -> str:
    fit = posterior.fit
    state = "converged" if fit.converged else "did NOT converge"
    acted = [f"{name.replace('_', ' ')} {count}" for name, count in vars(fit.interventions).items() if count]
    lines = [f"{fit.method} {state} in {fit.sweeps} sweeps" + (f" ({', '.join(acted)})." if acted else ".")]
    if posterior.prior is not None:
        lines.append(f"Prior covariance at shrinkage {posterior.prior.shrinkage:g}, by evidence.")
    if posterior.tempered is not None:
        stages, evidence = posterior.tempered.stages, posterior.tempered.evidence
        lines.append(
            f"Tempering SMC: {len(posterior.tempered.theta)} draws, {len(stages) - 1} stages, log evidence {evidence}."
        )
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"

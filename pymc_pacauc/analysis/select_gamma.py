"""Choosing gamma: by cross-validated AUC, or by the certificate itself (the paper's section 3.1).

With expectation propagation a value of gamma costs one fit, warm-started from a neighbour, and its folds are made by
removing sites from it (:mod:`pymc_pacauc.tune.gamma`, where the choice itself is explained). With tempering SMC one
run per fold passes through all values of gamma on its way.

gamma multiplies the risk of the pairs a posterior has seen, in a fold as in the whole sample: every fold is trained at
the gamma in the table, whatever the sizes of the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.util import get_random_generator
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_pacauc.analysis.tempered_folds import Tempered, choose_tempered, tempered_model
from pymc_pacauc.array_result import ArrayResult
from pymc_pacauc.certify.certificate import TUNED, certified_auc, check_certifiable
from pymc_pacauc.comparison.sizes import RowShares, row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import METHODS, fit
from pymc_pacauc.html_report import html_report
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, NotLinearGaussianError, found_terms
from pymc_pacauc.model.compat import LateBar, track
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import as_result, fitted_to
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import FittedTo, fitted_to_problem
from pymc_pacauc.tune.coverage import CoverageChoice, coverage_gamma
from pymc_pacauc.tune.gamma import (
    CRITERIA,
    FOLD_SWEEPS,
    RULES,
    Candidate,
    GammaChoice,
    choose_gamma,
    coarse_gammas,
    gamma_grid,
    paired_errors,
)


@dataclass(frozen=True, eq=False)
class GammaSelection:
    """What :func:`select_gamma` found.

    Attributes
    ----------
    table
        A row for each gamma. On held-out rows: ``auc`` of the mean score, the one to deploy, its standard error ``se``,
        and ``expected_auc`` of a draw from the posterior; how far the gamma stays behind the best one by the criterion
        (``loss``), with the standard error of that difference on the same folds (``loss_se``), and whether it is
        ``within`` one of it. On training rows: ``training_auc`` of a draw, ``log_evidence``, ``divergence`` from the
        prior, ``certified_auc`` (paying for the grid), ``converged``, and ``fold_change`` (EP: relative change by one
        more sweep in the worst fold). NaN where a criterion or method has no such thing.
    best
        The gamma chosen.
    refit
        The posterior at ``best`` from all observations: an approximation (EP, VB), draws (SMC), or, for a problem of
        arrays, its fit.
    criterion, rule, method
        How it was chosen.
    fold
        Fold of each observation in each deal, shape (repeats, n), -1 for those that gamma was not chosen on; empty for
        the certificate criterion.
    fold_auc
        AUC of the mean score, of each (gamma, deal, fold).
    """

    table: pd.DataFrame
    best: float
    refit: Any
    criterion: str
    rule: str
    method: str
    fold: NDArray[np.intp]
    fold_auc: FloatArray

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest gamma within one standard error of the best one by the criterion; NaN without folds."""
        gammas = self.table["gamma"][self.table["within"]]
        return (float(gammas.min()), float(gammas.max())) if len(gammas) else (np.nan, np.nan)

    def plot(self, ax: Any = None) -> Any:
        """AUCs, certificate and log evidence against gamma; see :func:`~pymc_pacauc.plots.plot_gamma_path`."""
        from pymc_pacauc.analysis.plots import plot_gamma_path

        return plot_gamma_path(self, ax=ax)

    def __repr__(self) -> str:
        row = self.table.loc[self.table["gamma"] == self.best].iloc[0]
        measure = as_result(self).fitted_to.measure
        chosen = f"GammaSelection(best={self.best:.4g} of {len(self.table)}, {self.method}"
        if self.criterion == "certificate":
            return f"{chosen}: certified {measure} {row['certified_auc']:.4f})"
        if self.criterion == "coverage":
            return f"{chosen}: credible sets are {np.sqrt(row['coverage_ratio']):.2f} times too small)"
        low, high = self.range
        repeats, folds = self.fold_auc.shape[1:]
        dealt = "once" if repeats == 1 else f"{repeats} times"
        used = int((self.fold >= 0).any(axis=0).sum())
        on = "" if used == self.fold.shape[1] else f", on {used} of {self.fold.shape[1]} rows"
        behind = f"{row['loss']:.4f} ± {row['loss_se']:.4f} behind it" if row["loss"] > 0 else "the best itself"
        return (
            f'{chosen}, rule="{self.rule}"\n'
            f"  held-out {measure} {row['auc']:.4f} ± {row['se']:.4f} (mean score), "
            f"{row['expected_auc']:.4f} (a draw); {folds} folds, dealt {dealt}{on}\n"
            f"  gamma from {low:.4g} to {high:.4g} is within one standard error of the best by {self.criterion}; "
            f"this one is {behind})"
        )

    def _repr_html_(self) -> str:
        words = repr(self).removeprefix("GammaSelection(").removesuffix(")")
        return html_report(words) + self.table.round(4).to_html(index=False)


@raises_interrupts
def select_gamma(
    model: pm.Model | Problem | None = None,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    *,
    repeats: int | None = None,
    method: str = "ep",
    criterion: str = "auc",
    rule: str = "stable",
    groups: ArrayLike | None = None,
    rows: int | None = None,
    set_data: bool = False,
    level: float = 0.9,
    epsilon: float = 0.05,
    selected_from: int | None = None,
    refine: int = FOLD_SWEEPS,
    particles: int = 1000,
    n_jobs: int = 1,
    client: Any = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> GammaSelection:
    """Choose gamma by cross-validation, by certificate, or so that credible sets cover.

    Parameters
    ----------
    model
        The model; by default the one on the context stack. Its own gamma is not used. EP and VB need scores that are
        affine in variables with Gaussian or spike-and-slab priors (linear, Gaussian process, HSGP), SMC takes any. Or a
        :class:`~pymc_pacauc.problem.problem.Problem` of arrays.
    gammas
        Values to compare. By default a grid around what Theorem 2.3 suggests for a comparison of this size
        (:mod:`pymc_pacauc.comparison.sizes`), finer around the choice,
        and further up while its end is chosen.
    folds
        Number of folds. They are stratified by class, by event where times are censored, and by stratum; whole strata
        are left out where most are too small to be shared out. Held-out rows are judged by the model's own comparison
        (strata, weights, ordered classes, censored times), among themselves; a deal that leaves a fold without a pair
        to compare is dealt again.
    repeats
        How often the folds are dealt, all held-out AUCs being averaged. By default the fewer the more there is to
        compare: 400 n / (n+ n-), rounded up, and at most 20 times (9 for 68 positives among 200 rows, 2 for 300 among
        1000); with SMC once.
    method
        ``"ep"``, ``"vb"`` or ``"smc"``.
    criterion
        ``"auc"``: held-out AUC of the mean score. ``"expected_auc"``: held-out AUC of a draw from the posterior.
        ``"certificate"``: the certified AUC (PAC-Bayes-kl) of the training rows. ``"coverage"``: credible sets of the
        direction of the coefficients, and intervals of score differences, that cover as often as they say
        (:mod:`pymc_pacauc.tune.coverage`; two classes and a Gaussian prior centred at zero; ``gammas``, ``folds`` and
        ``rule`` are not used). The table then has a column ``coverage_ratio``: how many times too small the sets are,
        in squared radius.
    rule
        ``"stable"``: see Notes. ``"best"``: the highest criterion; by the mean score this may be the prior's end of the
        grid. ``"one_se"``: the largest gamma within one (paired) standard error of it.
    groups
        Group label of each observation; a group is never split between folds. (With several AUC terms of one length,
        an observation goes to the same fold in all of them; their gammas keep their proportions, and the gamma chosen
        is the sum.)
    rows
        About how many rows to choose on (EP, variational Bayes). By default all up to 2500, and about 1000 of more for
        the stable rule among gammas that are looked for. The choice is then taken to all rows, growing like
        (n+ n- / n)^0.6, as it does when made on all of them; the table has gammas for all rows, and the columns about
        training rows for the chosen one alone.
    set_data
        Set the ``pm.Data`` that holds the model's gamma to the gamma chosen (of several terms, each to its share).
    level
        At which credible sets are to cover, for the coverage criterion.
    epsilon
        Of the certificates.
    selected_from
        What certificates pay for, by default the size of the grid. PAC-Bayes-kl holds for all posteriors at once, so
        with a prior fixed beforehand 1 is enough.
    refine
        At most so many sweeps over the remaining pairs after a fold's sites are removed; one or two are usually enough,
        and the column ``fold_change`` of the table says how far the last one moved the worst fold.
    particles
        Of each SMC run.
    n_jobs
        Processes, by joblib, for the folds of SMC (scores affine in Gaussian variables); EP uses threads by itself.
    client
        A ``dask.distributed.Client`` whose workers share the pairs of each fit and the deals of the folds, for EP and
        variational Bayes by cross-validation; see :mod:`pymc_pacauc.cluster`.
    random_seed
        For the folds and for SMC.
    progressbar
        Whether to show one when it takes more than a second.

    Returns
    -------
    GammaSelection

    Notes
    -----
    At small gamma the *mean* score often ranks well although the posterior says nothing: draws, bands and certificates
    are those of the prior. The stable rule therefore asks of the *draws* that they rank held-out rows as well as the
    mean score, to within the standard error of its AUC over rows (and at least half as far above chance), and takes the
    smallest gamma at which they do (or at which they rank best, if that comes first); and of the criterion that it be
    within one paired standard error of its best, or a quarter of the one over rows. It varies little when folds are
    dealt anew (``benchmarks/gamma_stability.py``, ``gamma_unseen.py``), unlike the highest AUC, which lies on a
    plateau; :mod:`pymc_pacauc.tune.gamma` has the reasons. Without cross-validation,
    ``gamma="default"`` in :func:`~pymc_pacauc.AUCPotential` is about what it chooses.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(150, 3))
    >>> with pm.Model() as model:
    ...     gamma = pm.Data("gamma", 1.0)
    ...     theta = pm.Normal("theta", size=3)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=150) > 0, gamma=gamma)
    >>> selection = pac.select_gamma(model, gammas=[1, 10, 100], set_data=True, random_seed=1)
    >>> selection.best in (1, 10, 100), bool(selection.best == model["gamma"].get_value())
    (True, True)
    """
    _check_choice("method", method, (*METHODS, "smc"))
    _check_choice("criterion", criterion, (*CRITERIA, "certificate", "coverage"))
    _check_choice("rule", rule, RULES)
    if criterion == "certificate" and method == "smc":
        raise ValueError('criterion="certificate" needs a divergence in closed form: method="ep" or "vb".')
    if criterion == "coverage" and method != "ep":
        raise ValueError('criterion="coverage" compares the sums of EP: method="ep".')
    if client is not None and (method == "smc" or criterion == "certificate"):
        raise ValueError('client is for cross-validation by method="ep" or "vb": leave it away here.')
    rng = get_random_generator(random_seed)
    problem = model if isinstance(model, Problem) else None
    if problem is None:
        model = pm.modelcontext(model)
    terms = [] if problem is not None else found_terms(model)
    holders = _gamma_data(model, terms) if set_data else {}
    groups = _same_rows(terms, groups) if len(terms) > 1 else groups
    if rows is not None and (method == "smc" or criterion not in CRITERIA):
        raise ValueError('rows is for cross-validation by method="ep" or "vb": leave it away here.')
    if method == "smc":
        if problem is not None:
            raise ValueError('method="smc" takes a PyMC model; for a problem of arrays use method="ep" or "vb".')
        target = tempered_model(model)
        choice = choose_tempered(
            target, gammas, folds, repeats, criterion, rule, groups, particles, n_jobs, rng, progressbar
        )
        refit = choice.candidates[choice.chosen].posterior.draws(model, target.fitted_to, rng)
        of_training = [_tempered_row(each.posterior) for each in choice.candidates]
        table, fold_auc = _held_out_table(choice.candidates, criterion, of_training)
        selection = GammaSelection(table, choice.gamma, refit, criterion, rule, "SMC", choice.folds, fold_auc)
    else:
        source = _source(model) if problem is None else None
        if source is not None:
            problem = source.problem
        assert problem is not None
        record = (
            fitted_to_problem(problem, METHODS[method])
            if source is None
            else fitted_to(source.model, METHODS[method], problem, terms)
        )
        if criterion == "certificate":
            check_certifiable(record)
            if record.tuned_prior:
                raise ValueError(TUNED)
            grid = default_gammas(row_shares(problem.pairs)) if gammas is None else gamma_grid(gammas)
            pays = grid.size if selected_from is None else selected_from
            selection = _by_certificate(problem, record, grid, method, rule, epsilon, pays, progressbar)
        elif criterion == "coverage":
            with LateBar("EP along gamma", show=progressbar) as bar:
                calibrated = coverage_gamma(problem, level, callback=lambda done: bar.update(done, max(done, 5)))
            selection = _by_coverage(calibrated, record, epsilon, selected_from or len(calibrated.path))
        else:
            with LateBar(f"{METHODS[method]} along gamma", show=progressbar) as bar:
                total = len(coarse_gammas(row_shares(problem.pairs))) + 2 if gammas is None else np.size(gammas)
                choice = choose_gamma(
                    problem,
                    gammas,
                    folds,
                    repeats=repeats,
                    method=method,
                    criterion=criterion,
                    rule=rule,
                    groups=groups,
                    rows=rows,
                    refine=refine,
                    rng=rng,
                    callback=lambda done: bar.update(done, max(done, total)),
                    client=client,
                )
            pays = len(choice.candidates) if selected_from is None else selected_from
            table, fold_auc = _held_out_table(
                choice.candidates, criterion, _training_rows(choice, record, epsilon, pays)
            )
            selection = GammaSelection(
                table, choice.gamma, choice.fit, criterion, rule, METHODS[method], choice.folds, fold_auc
            )
        _tell_unconverged(selection.table, method)
        if source is not None:
            found = selection.refit
            selection = replace(selection, refit=EPApproximation(found, replace(source, problem=found.problem)))
    for holder, share in holders.items():
        holder.set_value(np.asarray(selection.best * share, dtype=holder.type.dtype))
    return selection


def default_gammas(shares: RowShares) -> FloatArray:
    """Fifteen values around that of Theorem 2.3, n+ n- / (4n) for two classes: from a quarter of it to 32 times it."""
    return 0.25 * shares.size * 2.0 ** np.linspace(-2, 5, 15)


# -- expectation propagation -----------------------------------------------------------------------------------------


def _source(model: pm.Model) -> Any:
    try:
        return problem_of(model)
    except NotLinearGaussianError as error:
        raise NotLinearGaussianError(f'{error} For those, pac.select_gamma(model, method="smc").') from None


def _by_certificate(
    problem: Problem,
    record: FittedTo,
    grid: FloatArray,
    method: str,
    rule: str,
    epsilon: float,
    selected_from: int,
    progressbar: bool,
) -> GammaSelection:
    """The fit along the grid with the best certificate."""
    fits: list[Fit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told from `converged`
        for gamma in track(grid, f"{METHODS[method]} along gamma", grid.size, progressbar):
            start = fits[-1] if fits and fits[-1].converged else None
            fits.append(fit(replace(problem, gamma=float(gamma)), method, start=start))
    rows = [_row(each, record, epsilon, selected_from) for each in fits]
    nothing = dict.fromkeys(("auc", "se", "expected_auc", "loss", "loss_se"), np.nan)
    table = pd.DataFrame([{"gamma": g, **nothing, "within": False, **row} for g, row in zip(grid, rows, strict=True)])
    best = int(np.nanargmax(table["certified_auc"].to_numpy()))
    none = np.empty((0, problem.n), dtype=np.intp)
    return GammaSelection(
        table,
        float(grid[best]),
        fits[best],
        "certificate",
        rule,
        METHODS[method],
        none,
        np.empty((grid.size, 0, 0)),
    )


def _by_coverage(choice: CoverageChoice, record: FittedTo, epsilon: float, selected_from: int) -> GammaSelection:
    """The path to the calibrated gamma as a table."""
    nothing = dict.fromkeys(("auc", "se", "expected_auc", "loss", "loss_se"), np.nan)
    rows = [
        {"gamma": at.gamma, **nothing, "within": False, **_row(each, record, epsilon, selected_from)}
        for at, each in zip(choice.path, choice.fits, strict=True)
    ]
    table = pd.DataFrame(rows).assign(coverage_ratio=[at.ratio for at in choice.path])
    none = np.empty((0, choice.fit.problem.n), dtype=np.intp)
    ordered = table.sort_values("gamma", ignore_index=True)
    return GammaSelection(
        ordered, choice.gamma, choice.fit, "coverage", "coverage", "EP", none, np.empty((len(rows), 0, 0))
    )


def _training_rows(choice: GammaChoice, record: FittedTo, epsilon: float, selected_from: int) -> list[dict[str, Any]]:
    """What is known without folds of each candidate; given all rows of the chosen one only, where some were enough."""
    if not choice.on_few_rows:
        return [_row(each.posterior, record, epsilon, selected_from) for each in choice.candidates]
    found = _row(choice.fit, record, epsilon, selected_from)
    unknown = dict.fromkeys(found, np.nan)
    rows = [{**unknown, "converged": each.posterior.converged} for each in choice.candidates]
    rows[choice.chosen] = found
    return rows


def _row(each: Fit, record: FittedTo, epsilon: float, selected_from: int) -> dict[str, Any]:
    """What is known of a fit without folds; no certificate where there is no bound for what is compared."""
    result = ArrayResult(each, record)
    return {
        "training_auc": 1.0 - result.mean_risk.value,
        "log_evidence": each.log_evidence,
        "divergence": each.divergence,
        "certified_auc": certified_auc(result, epsilon, selected_from),
        "converged": each.converged,
    }


def _tell_unconverged(table: pd.DataFrame, method: str) -> None:
    if not table["converged"].all():
        bad = ", ".join(f"{gamma:.4g}" for gamma in table["gamma"][~table["converged"]])
        warnings.warn(
            f"{METHODS[method]} did not converge at gamma = {bad}; see the column `converged`.",
            ConvergenceWarning,
            stacklevel=4,
        )


# -- tempering SMC ---------------------------------------------------------------------------------------------------


def _tempered_row(at: Tempered) -> dict[str, Any]:
    return {
        "training_auc": 1.0 - at.expected_risk,
        "log_evidence": at.log_evidence,
        "divergence": -at.gamma * at.expected_risk - at.log_evidence,
        "certified_auc": np.nan,
        "converged": True,
    }


# -- both ------------------------------------------------------------------------------------------------------------


def _held_out_table(
    candidates: Sequence[Candidate], criterion: str, rows: Sequence[dict[str, Any]]
) -> tuple[pd.DataFrame, FloatArray]:
    auc, expected = (np.array([getattr(each, name) for each in candidates]) for name in CRITERIA)
    errors = paired_errors(auc if criterion == "auc" else expected)
    table = pd.DataFrame(
        {
            "gamma": [each.gamma for each in candidates],
            "auc": auc.mean(axis=(1, 2)),
            "se": np.sqrt(auc.var(axis=2, ddof=1).mean(axis=1) / auc.shape[2]),
            "expected_auc": expected.mean(axis=(1, 2)),
            "loss": errors.loss,
            "loss_se": errors.se,
            "within": errors.within,
        }
    )
    table = pd.concat([table, pd.DataFrame(list(rows))], axis=1)
    table["fold_change"] = [each.change for each in candidates]
    return table, auc


def _gamma_data(model: pm.Model, terms: Sequence[AUCTerm]) -> dict[SharedVariable, float]:
    """The ``pm.Data`` that are the gammas of the model's terms, and the share of each in the sum of all."""
    total = sum(term.gamma for term in terms)
    found = {}
    for term in terms:
        others = set(ancestors([term.risk]))
        data = [v for v in ancestors([term.potential]) if v in set(model.data_vars) and v not in others]
        if not (len(data) == 1 and isinstance(data[0], SharedVariable) and np.isclose(data[0].get_value(), term.gamma)):
            raise ValueError(
                f"set_data=True sets the pm.Data that is the gamma of {term.potential.name}, and there is none: write "
                'gamma = pm.Data("gamma", 1.0) in the model and pac.AUCPotential(..., gamma=gamma).'
            )
        found[data[0]] = term.gamma / total
    return found


def _same_rows(terms: Sequence[AUCTerm], groups: ArrayLike | None) -> ArrayLike | None:
    """Groups of the scores of several terms, one term after the other: terms of one length are about the same rows."""
    sizes = [term.labels.size for term in terms]
    same = len(set(sizes)) == 1
    if groups is None:
        return np.tile(np.arange(sizes[0]), len(terms)) if same else None
    given = np.asarray(groups, dtype=None if hasattr(groups, "__array__") else object)
    return np.tile(given, len(terms)) if same and given.shape == (sizes[0],) else groups


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")

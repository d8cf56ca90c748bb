"""Choose gamma of a model by cross-validated AUC, by the certificate, or by the coverage of credible sets.

gamma multiplies the mean risk of the pairs that a posterior has seen: every fold is trained at the gamma in the table,
whatever its size. The rule of cross-validation is in :mod:`pymc_pacauc.tune.gamma`, that of coverage in
:mod:`pymc_pacauc.tune.coverage`; the certificate's is the largest certified AUC of a grid. All of them make the same
table (:class:`GammaSelection`), from results that follow :class:`~pymc_pacauc.array_result.Result`.

*By tempering SMC* (:func:`choose_tempered`) there is one run for each fold, and one for all rows. Each passes through
all temperatures from the prior to the largest gamma, and :func:`temper` reweights the particles of the nearest stage to
the gamma asked for. A fold changes only which observations are compared, so it works for any model, linear or not, and
any comparison: scores are computed for all rows, the risk of the training rows is tempered, and the mean score and
draws are evaluated on the held-out rows.

To add a criterion, return a :class:`GammaSelection` with a row for each gamma, as :func:`_by_certificate` does.

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_pacauc.array_result import ArrayResult, Estimate, KnownResult, gibbs_result, html_report, stats_of
from pymc_pacauc.certify.certificate import TUNED, certified_auc, check_certifiable
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.fitting import fit, fits_along
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, NotLinearGaussianError, found_terms, names_of
from pymc_pacauc.model.compat import LateBar, track
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.idata import draws_to_inference_data
from pymc_pacauc.model.read import ModelProblem, joined_pairs, linear_terms, problem_of
from pymc_pacauc.model.results import as_result, fitted_to
from pymc_pacauc.model.score_function import read_scores
from pymc_pacauc.numerics import FloatArray, check_choice, log_mean_exp, normalise
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.smc.log_evidence import combine, stage_variance
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, Stage, State, run_tempering
from pymc_pacauc.tune import gamma as rule
from pymc_pacauc.tune.coverage import coverage_gamma


@dataclass(frozen=True, eq=False)
class GammaSelection:
    """Gamma that :func:`select_gamma` chose, with the table of candidates and the posterior there.

    Attributes
    ----------
    table : DataFrame
        A row for each gamma of the grid and for the one chosen. On held-out rows: ``auc`` of the mean score, the one to
        deploy, its standard error ``se``, and ``expected_auc`` of a draw from the posterior; how far the gamma stays
        behind the best of them (``loss``), with the standard error of that difference on the same folds (``loss_se``),
        and whether it is ``within`` one of it. On training rows: ``training_auc`` of a draw, ``log_evidence``,
        ``divergence`` from the prior, ``certified_auc`` (with probability 0.95), ``converged``, and ``fold_change``
        (EP: relative change by one more sweep in the worst fold). NaN where a criterion or method has no such thing.
    best : float
        The gamma chosen.
    refit : EPApproximation, DataTree or Fit
        The posterior at ``best`` from all observations: an approximation (EP, VB), draws (SMC), or, for a problem of
        arrays, its fit.
    criterion, method : str
        How it was chosen.
    fold : ndarray of int, shape (repeats, n)
        Fold of each observation in each assignment, -1 for those that gamma was not chosen on; empty without
        cross-validation.
    fold_auc : ndarray, shape (gammas, repeats, folds)
        AUC of the mean score, of each (gamma, assignment, fold).

    See Also
    --------
    select_gamma : Make the choice.
    pymc_pacauc.plots.plot_gamma_path : Draw the table.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> problem = pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=1.0)
    >>> selection = pac.select_gamma(problem, gammas=[10, 100], folds=2, progressbar=False)
    >>> selection.best in (10, 100), selection.table["gamma"].tolist()
    (True, [10.0, 100.0])
    """

    table: pd.DataFrame
    best: float
    refit: Any
    criterion: str
    method: str
    fold: NDArray[np.intp]
    fold_auc: FloatArray

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest gamma of the table within one standard error of the best one; NaN without folds."""
        gammas = self.table["gamma"][self.table["within"]]
        return (float(gammas.min()), float(gammas.max())) if len(gammas) else (np.nan, np.nan)

    def plot(self, ax: Any = None) -> Any:
        """Draw AUCs, certificate and log evidence against gamma.

        Parameters
        ----------
        ax : sequence of two matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        ndarray of matplotlib Axes
            Two: AUCs above, log evidence below.

        Raises
        ------
        ValueError
            If ``ax`` is not two axes.
        ImportError
            If matplotlib is not installed.

        See Also
        --------
        pymc_pacauc.plots.plot_gamma_path : The function that draws.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> from matplotlib.figure import Figure
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> problem = pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=1.0)
        >>> selection = pac.select_gamma(problem, gammas=[10, 100], folds=2, progressbar=False)
        >>> len(selection.plot(ax=Figure().subplots(2)))
        2
        """
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
        times = "" if repeats == 1 else f", {repeats} times"
        used = int((self.fold[0] >= 0).sum())
        on = "" if used == self.fold.shape[1] else f", on {used} of {self.fold.shape[1]} rows"
        behind = f"{row['loss']:.4f} ± {row['loss_se']:.4f} behind it" if row["loss"] > 0 else "the best itself"
        return (
            f"{chosen}\n"
            f"  held-out {measure} {row['auc']:.4f} ± {row['se']:.4f} (mean score), "
            f"{row['expected_auc']:.4f} (a draw); {folds} folds{times}{on}\n"
            f"  gamma from {low:.4g} to {high:.4g} is within one standard error of the best; this one is {behind})"
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
    method: str = "ep",
    criterion: str = "auc",
    groups: ArrayLike | None = None,
    set_data: bool = False,
    client: Any = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> GammaSelection:
    """Choose gamma by cross-validation, by certificate, or by the coverage of credible sets.

    Parameters
    ----------
    model : pm.Model or Problem, optional
        The model; by default the one on the context stack. Its own gamma is not used. EP and VB need scores that are
        affine in variables with Gaussian or spike-and-slab priors (linear, Gaussian process, HSGP), SMC takes any. Or a
        :class:`~pymc_pacauc.problem.problem.Problem` of arrays.
    gammas : array-like, optional
        Values to choose from. By default gamma is a mean over a grid; see Notes.
    folds : int, default 5
        Number of folds. They are stratified by class, by event where times are censored, and by stratum; whole strata
        are left out where most are too small to be divided. Held-out rows are evaluated by the model's own comparison
        (strata, weights, ordered classes, censored times), among themselves.
    method : {"ep", "vb", "smc"}, default "ep"
        Expectation propagation, Gaussian variational Bayes, or tempering SMC with 1000 particles.
    criterion : {"auc", "certificate", "coverage"}, default "auc"
        ``"auc"``: held-out AUC of the mean score. ``"certificate"``: the highest certified AUC (PAC-Bayes-kl) of the
        training rows. It holds for all posteriors of one prior at once, so choosing gamma by it costs nothing.
        ``"coverage"``: credible sets, with probability 0.9, of the direction of the coefficients, and intervals of
        score differences, of nominal coverage (:mod:`pymc_pacauc.tune.coverage`; two classes and a Gaussian
        prior centred at zero; ``gammas`` and ``folds`` are not used). The table then has a column ``coverage_ratio``:
        how many times too small the sets are, in squared radius.
    groups : array_like, shape (n,), optional
        Group label of each observation; a group is never split between folds. With several AUC terms of one length,
        an observation goes to the same fold in all of them; their gammas keep their proportions, and the gamma chosen
        is the sum.
    set_data : bool, default False
        Set the ``pm.Data`` that holds the model's gamma to the gamma chosen (of several terms, each to its share).
    client : dask.distributed.Client, optional
        Client of a cluster whose workers divide the pairs of each fit and the folds, for EP and variational Bayes by
        cross-validation; see :mod:`pymc_pacauc.cluster`.
    random_seed : optional
        Seed of SMC. Folds do not depend on it: the same rows, in any order, have the same folds.
    progressbar : bool, default True
        Whether to show one when it takes more than a second.

    Returns
    -------
    GammaSelection
        ``best``, the gamma chosen; ``table`` of the candidates; ``refit``, the posterior at ``best``.

    Raises
    ------
    ValueError
        If the model has no AUC term, ``gammas`` are not positive, ``folds`` cannot be made, or ``method`` or
        ``criterion`` is unknown or not for this model.

    Warns
    -----
    ConvergenceWarning
        If fits do not converge, which the column ``converged`` of the table shows, or gamma by coverage does not.
    TemperingWarning
        If a run of SMC may be wrong.

    See Also
    --------
    pymc_pacauc.theorems.default_gamma : A gamma without cross-validation.
    leave_out : Cross-validated scores of one fit.
    maximize_evidence : Choose hyper-parameters of the prior.
    pymc_pacauc.plots.plot_gamma_path : Draw the table.

    Notes
    -----
    The held-out AUC of the mean score is nearly constant over a wide range of gamma, where its maximum is noise of the
    folds. So gamma is the weighted geometric mean of a grid from a quarter of n+ n- / n in steps of four to 16 times
    it, and further while the last is the best (at most the number of pairs). Weights are exp(-z^2), z the loss against
    the best gamma in standard errors of the difference, times a wide log-normal prior centred at 2 n+ n- / n. Of given
    gammas the one nearest to this mean is chosen. Rows are assigned to folds two to four times, more often if there are
    few (with SMC once). Of more than 2500 rows about 1000 are used (EP, variational Bayes, without given gammas), and
    the choice is scaled to all rows; the table then has the columns about training rows for the chosen gamma alone.
    :mod:`pymc_pacauc.tune.gamma` has the reasons, ``docs/develop/gamma.md`` the measurements. Without cross-validation,
    ``gamma="default"`` in :func:`~pymc_pacauc.AUCPotential` is 4 n+ n- / n.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(150, 3))
    >>> with pm.Model() as model:
    ...     gamma = pm.Data("gamma", 1.0)
    ...     theta = pm.Normal("theta", size=3)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=150) > 0, gamma=gamma)
    >>> selection = pac.select_gamma(model, gammas=[1, 10, 100], set_data=True, progressbar=False)
    >>> selection.best in (1, 10, 100), bool(selection.best == model["gamma"].get_value())
    (True, True)
    """
    _check(method, criterion, client)
    problem = model if isinstance(model, Problem) else None
    model = None if problem is not None else pm.modelcontext(model)
    terms = [] if model is None else found_terms(model)
    holders = _gamma_data(model, terms) if set_data else {}
    groups = _same_rows(terms, groups) if len(terms) > 1 else groups
    source: ModelProblem | None = None
    if method == "smc":
        if model is None:
            raise ValueError('method="smc" takes a PyMC model; for a problem of arrays use method="ep" or "vb".')
        rng, target = np.random.default_rng(random_seed), tempered_model(model)
        choice, at = choose_tempered(target, gammas, folds, groups=groups, rng=rng, progressbar=progressbar)
        rows = [_row(at(each.gamma).result) for each in choice.candidates]
        found: Found = rows, at(choice.gamma).draws(model, rng), choice
    else:
        if problem is None:
            source = _source(model)
            problem = source.problem
            record = fitted_to(source.model, METHODS[method], problem, terms)
        else:
            record = fitted_to_problem(problem, METHODS[method])
        with LateBar(f"{METHODS[method]} along gamma", show=progressbar) as bar:
            if criterion == "certificate":
                found = _by_certificate(problem, record, gammas, method, bar)
            elif criterion == "coverage":
                found = _by_coverage(problem, record, bar)
            else:
                options = {"method": method, "client": client}
                found = _by_folds(problem, record, gammas, bar, options, folds=folds, groups=groups)
    selection = _selection(*found, criterion, {**METHODS, "smc": "SMC"}[method])
    _tell_unconverged(selection, gammas)
    if source is not None:
        fitted = selection.refit
        selection = replace(selection, refit=EPApproximation(fitted, replace(source, problem=fitted.problem)))
    for holder, share in holders.items():
        holder.set_value(np.asarray(selection.best * share, dtype=holder.type.dtype))
    return selection


def _check(method: str, criterion: str, client: Any) -> None:
    """Refuse combinations of options that do not exist."""
    check_choice("method", method, (*METHODS, "smc"))
    check_choice("criterion", criterion, ("auc", "certificate", "coverage"))
    if criterion == "certificate" and method == "smc":
        raise ValueError('criterion="certificate" needs a divergence in closed form: use method="ep" or "vb".')
    if criterion == "coverage" and method != "ep":
        raise ValueError(f'criterion="coverage" is for method="ep"; got method={method!r}.')
    if client is not None and (method == "smc" or criterion != "auc"):
        raise ValueError('client is for criterion="auc" with method="ep" or "vb": leave client out.')


# -- expectation propagation -----------------------------------------------------------------------------------------


Found = tuple[list[dict[str, Any]], Any, rule.GammaChoice | None]  # rows of the table, the refit, the choice by folds


def _source(model: pm.Model | None) -> ModelProblem:
    """Read a model as arrays; where that fails, recommend SMC."""
    try:
        return problem_of(pm.modelcontext(model))
    except NotLinearGaussianError as error:
        raise NotLinearGaussianError(f'{error} For those, pac.select_gamma(model, method="smc").') from None


def _by_folds(
    problem: Problem, record: Provenance, gammas: ArrayLike | None, bar: LateBar, options: dict[str, Any], **folds: Any
) -> Found:
    """Choose by folds, with a fit at each gamma; where gamma was chosen on some of the rows, at the choice alone."""
    total = rule.gamma_grid(row_shares(problem.pairs), gammas).size + 1
    choice = rule.choose_gamma(problem, gammas, callback=lambda done: bar.update(done, total), **folds, **options)
    grid = np.array([each.gamma for each in choice.candidates])
    some = choice.rows < problem.compared_rows.size
    along = [] if some else [replace(problem, gamma=float(gamma)) for gamma in grid]
    fits = list(fits_along(along, accuracy="path", **options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told from `converged`
        start = None if some else fits[choice.chosen]
        final = fit(replace(problem, gamma=choice.gamma), start=start, **options)
    found = _row(ArrayResult(final, record))
    blank = {**dict.fromkeys(found, np.nan), "converged": True}
    rows = [blank if some or each is start else _row(ArrayResult(each, record)) for each in fits or grid]
    rows[choice.chosen] = found
    return rows, final, choice


def _by_certificate(problem: Problem, record: Provenance, gammas: ArrayLike | None, method: str, bar: LateBar) -> Found:
    """Return the fit along the grid with the best certificate."""
    check_certifiable(record)
    if record.tuned_prior:
        raise ValueError(TUNED)
    shares = row_shares(problem.pairs)
    grid = rule.certificate_gammas(shares) if gammas is None else rule.gamma_grid(shares, gammas)
    fits = []
    for each in fits_along((replace(problem, gamma=float(gamma)) for gamma in grid), method):
        fits.append(each)
        bar.update(len(fits), grid.size)
    rows = [_row(ArrayResult(each, record)) for each in fits]
    best = int(np.nanargmax([row["certified_auc"] for row in rows]))
    return rows, fits[best], None


def _by_coverage(problem: Problem, record: Provenance, bar: LateBar) -> Found:
    """Return the path to the calibrated gamma as a table."""
    choice = coverage_gamma(problem, callback=lambda done: bar.update(done, max(done, 5)))
    path = sorted(zip(choice.fits, choice.path, strict=True), key=lambda step: step[0].problem.gamma)
    rows = [{**_row(ArrayResult(each, record)), "coverage_ratio": at.ratio} for each, at in path]
    return rows, choice.fit, None


def _row(result: Any) -> dict[str, Any]:
    """Return the row of a result without folds; the certificate is NaN where there is no bound."""
    return {
        "gamma": result.fitted_to.gamma,
        "training_auc": 1.0 - result.mean_risk.value,
        "log_evidence": result.evidence.estimate,
        "divergence": result.divergence.value,
        "certified_auc": certified_auc(result),
        "converged": not result.caveat,
    }


def _tell_unconverged(selection: GammaSelection, gammas: ArrayLike | None) -> None:
    """Warn of fits that did not converge: on the default grid of the chosen one, else of all."""
    table = selection.table
    if gammas is None and selection.criterion == "auc":
        table = table[table["gamma"] == selection.best]
    if not table["converged"].all():
        bad = ", ".join(f"{gamma:.4g}" for gamma in table["gamma"][~table["converged"]])
        warnings.warn(
            f"{selection.method} did not converge at gamma = {bad}; see the column `converged`.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _selection(
    rows: list[dict[str, Any]], refit: Any, choice: rule.GammaChoice | None, criterion: str, method: str
) -> GammaSelection:
    """Put columns about held-out rows, by the folds of a ``choice``, before those about training rows."""
    training = pd.DataFrame(rows)
    if choice is None:
        unknown: dict[str, Any] = dict.fromkeys(("auc", "se", "expected_auc", "loss", "loss_se"), np.nan)
        held_out = training[["gamma"]].assign(**unknown, within=False)
        best, fold, auc = refit.problem.gamma, np.empty((0, refit.problem.n), np.intp), np.empty((len(rows), 0, 0))
    else:
        held_out = pd.DataFrame(choice.columns)
        training["fold_change"] = held_out.pop("fold_change")
        best, fold, auc = choice.gamma, choice.folds, np.array([each.auc for each in choice.candidates])
    return GammaSelection(held_out.join(training.drop(columns="gamma")), best, refit, criterion, method, fold, auc)


def _gamma_data(model: pm.Model, terms: Sequence[AUCTerm]) -> dict[SharedVariable, float]:
    """Return the ``pm.Data`` that are the gammas of the model's terms, and the share of each in the sum of all."""
    total = sum(term.gamma for term in terms)
    found = {}
    for potential in dict.fromkeys(term.potential for term in terms):
        risks = {term.risk: term.gamma for term in terms if term.potential is potential}  # one, or that of each class
        gamma, others = sum(risks.values()), set(ancestors(list(risks)))
        data = [v for v in ancestors([potential]) if v in set(model.data_vars) and v not in others]
        holds = len(data) == 1 and isinstance(data[0], SharedVariable) and data[0].type.ndim == 0
        if not (holds and np.isclose(data[0].get_value(), gamma)):
            raise ValueError(
                f"set_data=True sets the pm.Data that is the gamma of {potential.name}, and there is none: write "
                'gamma = pm.Data("gamma", 1.0) in the model and pac.AUCPotential(..., gamma=gamma).'
            )
        found[data[0]] = gamma / total
    return found


def _same_rows(terms: Sequence[AUCTerm], groups: ArrayLike | None) -> ArrayLike | None:
    """Return groups of the scores of several terms, concatenated: terms of one length are about the same rows."""
    sizes = [term.comparison.n for term in terms]
    same = len(set(sizes)) == 1
    if groups is None:
        return np.tile(np.arange(sizes[0]), len(terms)) if same else None
    given = np.asarray(groups, dtype=None if hasattr(groups, "__array__") else object)
    return np.tile(given, len(terms)) if same and given.shape == (sizes[0],) else groups


# -- tempering SMC ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TemperedModel:
    """AUC terms that can be given other pairs and another gamma: a ``problem`` of arrays, or a PyMC ``model``.

    Where there are several terms, ``comparison`` is one of the scores of all of them, one after the other, and gamma
    the sum of theirs.
    """

    comparison: Pairs
    fitted_to: Provenance
    problem: Problem | None = None
    model: pm.Model | None = None

    def path(self, comparison: Any, gamma: float) -> tuple[Any, Callable[[FloatArray], FloatArray]]:
        """Return the path from the prior to gamma, and the map from ``theta[N, d]`` to scores of all rows, (N, n)."""
        if self.problem is None:
            path = PyMCPath(pm.modelcontext(self.model), compared=comparison, gamma=gamma)
            return path, path.scores
        X, offset = self.problem.X, self.problem.offset
        return prior_path(replace(self.problem, pairs=comparison, gamma=gamma)), lambda theta: theta @ X.T + offset


@dataclass(frozen=True, eq=False)
class Tempered:
    """Weighted particles ``theta``, (N, d), at one gamma, the ``scores`` at these, and the ``result`` in numbers."""

    result: KnownResult
    theta: FloatArray
    risk: FloatArray
    weights: FloatArray
    scores: Callable[[FloatArray], FloatArray]

    def held_out_auc(self, comparison: Pairs) -> tuple[float, float]:
        """Compute the AUC by ``comparison`` of the mean score, and of a draw averaged over draws.

        A tie counts one half, whatever the model says.
        """
        scores = self.scores(self.theta)
        mean = 1.0 - float(pair_risk((self.weights @ scores)[None], comparison)[0])
        return mean, 1.0 - float(self.weights @ pair_risk(scores, comparison))

    def draws(self, model: pm.Model, rng: np.random.Generator) -> Any:
        """Draw equally weighted particles, as ArviZ data with their provenance."""
        index = rng.choice(len(self.theta), size=len(self.theta), p=self.weights)
        return draws_to_inference_data(
            model,
            self.theta[index][None],
            sample_stats={"risk": self.risk[index][None]},
            constants={**stats_of(self.result), "run": int(rng.integers(2**52))},
            method="TemperingSMC",
            score_function=read_scores(model),
        )


def tempered_model(model: pm.Model) -> TemperedModel:
    """Read the model as arrays where its scores are affine in Gaussian variables, else keep its graph."""
    terms = linear_terms(model)  # refuses a model without one
    risks = {term.risk for term in terms}
    others = [*model.observed_RVs, *(v for v in model.potentials if not risks & set(ancestors([v])))]
    if others:
        raise ValueError(
            "model must have nothing but AUC terms and a prior, for gamma by held-out rows; it has "
            f"{names_of(others)}, of which a fold would have to leave rows out too."
        )
    try:
        problem = problem_of(model).problem
    except NotLinearGaussianError:
        problem = None
    record = fitted_to(model, "TemperingSMC", problem)
    if problem is not None and problem.sites is None:
        return TemperedModel(problem.pairs, record, problem=problem)
    comparison = terms[0].comparison if len(terms) == 1 else joined_pairs(terms)[0]
    return TemperedModel(comparison, record, model=model)


def temper(
    target: TemperedModel, comparison: Pairs, gamma: float, settings: Settings, rng: np.random.Generator
) -> Callable[[float], Tempered]:
    """Run SMC; return the function of gamma (up to this one) that reweights the nearest stage to its posterior."""
    path, scores = target.path(comparison, gamma)
    stages: list[tuple[Stage, FloatArray, FloatArray]] = []

    def keep(state: State) -> None:
        theta, risk = path.finish(state.population, rng)
        stages.append((state.stages[-1], theta, risk))

    def at(gamma: float) -> Tempered:
        stage, theta, risk = min(stages, key=lambda kept: abs(kept[0].gamma - gamma))
        log_weights = -(gamma - stage.gamma) * risk
        weights = normalise(log_weights)
        mean = float(weights @ risk)
        error = float(np.linalg.norm(weights * (risk - mean)))
        variance = stage.log_evidence_variance + stage_variance(weights, np.arange(weights.size))
        evidence = combine(stage.log_evidence + log_mean_exp(log_weights), variance)
        result = gibbs_result(replace(target.fitted_to, gamma=gamma), Estimate(mean, error), evidence)
        return Tempered(result, theta, risk, weights, scores)

    run_tempering(path, settings, rng, keep)
    return at


def choose_tempered(
    target: TemperedModel,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    *,
    groups: ArrayLike | None = None,
    particles: int = 1000,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> tuple[rule.GammaChoice, Callable[[float], Tempered]]:
    """Choose gamma by SMC; return the choice, and the function of gamma that gives the posterior of all rows.

    Each fold, and all rows, have a run of their own, so rows are assigned to folds once.
    """
    settings = Settings(particles=particles)
    compared = target.comparison
    largest = float(rule.gamma_grid(row_shares(compared), gammas)[-1])
    order = None if target.problem is None else rule.content_order(target.problem.X)
    fold = rule.assign_folds(compared, folds, groups, order)[0]
    runs = [
        (temper(target, compared.among(fold != k), largest, settings, rng), compared.among(fold == k))
        for k in track(range(folds), "SMC runs", folds, progressbar)
    ]

    def evaluate(gamma: float) -> rule.Candidate:
        aucs = np.array([at(gamma).held_out_auc(out) for at, out in runs])  # (folds, 2)
        return rule.Candidate(gamma, aucs[None, :, 0], aucs[None, :, 1], 0.0)

    candidates, chosen = rule.choose_among(evaluate, gammas, compared)
    choice = rule.GammaChoice(tuple(candidates), chosen, fold[None], target.fitted_to.measure)
    return choice, temper(target, compared, largest, settings, rng)

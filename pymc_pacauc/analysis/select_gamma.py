"""Choosing gamma: by cross-validated AUC, or by the certificate itself (the paper's section 3.1).

How cross-validation chooses is told in :mod:`pymc_pacauc.tune.gamma`. With tempering SMC one run per fold passes
through all values of gamma on its way.

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
from pymc_pacauc.array_result import ArrayResult, html_report
from pymc_pacauc.certify.certificate import TUNED, certified_auc, check_certifiable
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, NotLinearGaussianError, found_terms
from pymc_pacauc.model.compat import LateBar, track
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import as_result, fitted_to
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.tune.coverage import coverage_gamma
from pymc_pacauc.tune.gamma import (
    Candidate,
    GammaChoice,
    certificate_gammas,
    choose_gamma,
    fits_along_gamma,
    gamma_grid,
    paired_errors,
)

CRITERIA = ("auc", "certificate", "coverage")
# Probability with which the certificates in a table may fail, and with which its credible sets cover.
EPSILON, LEVEL = 0.05, 0.9


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
    """Choose gamma by cross-validation, by certificate, or so that credible sets cover.

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
        are left out where most are too small to be shared out. Held-out rows are judged by the model's own comparison
        (strata, weights, ordered classes, censored times), among themselves.
    method : {"ep", "vb", "smc"}, default "ep"
        Expectation propagation, Gaussian variational Bayes, or tempering SMC with 1000 particles.
    criterion : {"auc", "certificate", "coverage"}, default "auc"
        ``"auc"``: held-out AUC of the mean score. ``"certificate"``: the highest certified AUC (PAC-Bayes-kl) of the
        training rows. It holds for all posteriors of one prior at once, so choosing gamma by it costs nothing.
        ``"coverage"``: credible sets, with probability 0.9, of the direction of the coefficients, and intervals of
        score differences, that cover as often as they say (:mod:`pymc_pacauc.tune.coverage`; two classes and a Gaussian
        prior centred at zero; ``gammas`` and ``folds`` are not used). The table then has a column ``coverage_ratio``:
        how many times too small the sets are, in squared radius.
    groups : array_like, shape (n,), optional
        Group label of each observation; a group is never split between folds. With several AUC terms of one length,
        an observation goes to the same fold in all of them; their gammas keep their proportions, and the gamma chosen
        is the sum.
    set_data : bool, default False
        Set the ``pm.Data`` that holds the model's gamma to the gamma chosen (of several terms, each to its share).
    client : dask.distributed.Client, optional
        Whose workers share the pairs of each fit and the assignments of folds, for EP and variational Bayes by
        cross-validation; see :mod:`pymc_pacauc.cluster`.
    random_seed : optional
        For SMC. Nothing else is left to chance: the same rows, in any order, give the same folds.
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

    See Also
    --------
    pymc_pacauc.theorems.default_gamma : A gamma without cross-validation.
    leave_out : Cross-validated scores of one fit.
    maximize_evidence : Choose hyper-parameters of the prior.
    pymc_pacauc.plots.plot_gamma_path : Draw the table.

    Notes
    -----
    The held-out AUC of the mean score lies on a plateau along gamma, and which gamma is highest there is the noise of
    the folds. So gamma is the geometric mean of a grid from a quarter of n+ n- / n in steps of four to 16 times it, and
    further while the last is the best (at most the number of pairs), each weighing exp(-z^2), where z is how many
    standard errors of the difference it stays behind the best one, times a wide log-normal prior centred at 2 n+ n- /
    n. Of given gammas the nearest to their mean is chosen. Rows are assigned to folds two to four times, the more often
    the fewer there are (with SMC once). Of more than 2500 rows about 1000 choose (EP, variational Bayes, without given
    gammas), and the choice is taken to all of them; the table then has the columns about training rows for the chosen
    gamma alone. :mod:`pymc_pacauc.tune.gamma` has the reasons, ``docs/develop/gamma.md`` the measurements. Without
    cross-validation, ``gamma="default"`` in :func:`~pymc_pacauc.AUCPotential` is 4 n+ n- / n.

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
    if method == "smc":
        if model is None:
            raise ValueError('method="smc" takes a PyMC model; for a problem of arrays use method="ep" or "vb".')
        rng = get_random_generator(random_seed)
        selection = _by_tempering(model, gammas, folds, groups, rng, progressbar)
    else:
        source = None if model is None else _source(model)
        if source is not None:
            problem = source.problem
        assert problem is not None
        if source is None:
            record = fitted_to_problem(problem, METHODS[method])
        else:
            record = fitted_to(source.model, METHODS[method], problem, terms)
        if criterion == "certificate":
            selection = _by_certificate(problem, record, gammas, method, progressbar)
        elif criterion == "coverage":
            selection = _by_coverage(problem, record, progressbar)
        else:
            with LateBar(f"{METHODS[method]} along gamma", show=progressbar) as bar:
                total = gamma_grid(row_shares(problem.pairs), gammas).size + 1
                options = {"method": method, "groups": groups, "client": client}
                choice = choose_gamma(problem, gammas, folds, callback=lambda done: bar.update(done, total), **options)
            selection = _by_folds(problem, record, choice, method, client)
        _tell_unconverged(selection, gammas)
        if source is not None:
            found = selection.refit
            selection = replace(selection, refit=EPApproximation(found, replace(source, problem=found.problem)))
    for holder, share in holders.items():
        holder.set_value(np.asarray(selection.best * share, dtype=holder.type.dtype))
    return selection


def _check(method: str, criterion: str, client: Any) -> None:
    for name, value, choices in (("method", method, (*METHODS, "smc")), ("criterion", criterion, CRITERIA)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
    if criterion == "certificate" and method == "smc":
        raise ValueError('criterion="certificate" needs a divergence in closed form: method="ep" or "vb".')
    if criterion == "coverage" and method != "ep":
        raise ValueError('criterion="coverage" compares the sums of EP: method="ep".')
    if client is not None and (method == "smc" or criterion != "auc"):
        raise ValueError('client is for cross-validation by method="ep" or "vb": leave it away here.')


# -- expectation propagation -----------------------------------------------------------------------------------------


def _source(model: pm.Model) -> Any:
    try:
        return problem_of(model)
    except NotLinearGaussianError as error:
        raise NotLinearGaussianError(f'{error} For those, pac.select_gamma(model, method="smc").') from None


def _by_folds(problem: Problem, record: Provenance, choice: GammaChoice, method: str, client: Any) -> GammaSelection:
    """The choice with a fit at each gamma; where some rows were enough, at the chosen one alone."""
    gammas = np.array([each.gamma for each in choice.candidates])
    some = choice.rows < problem.compared_rows.size
    fits = [] if some else list(fits_along_gamma(problem, gammas, method, accuracy="path", client=client))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told from `converged`
        start = None if some else fits[choice.chosen]
        final = fit(replace(problem, gamma=choice.gamma), method, start=start, client=client)
    if some:
        found = _row(final, record)
        rows = [{**dict.fromkeys(found, np.nan), "converged": True} for _ in gammas]
        rows[choice.chosen] = found
    else:
        fits[choice.chosen] = final
        rows = [_row(each, record) for each in fits]
    table, fold_auc = _held_out_table(choice.candidates, rows)
    return GammaSelection(table, choice.gamma, final, "auc", METHODS[method], choice.folds, fold_auc)


def _by_certificate(
    problem: Problem, record: Provenance, gammas: ArrayLike | None, method: str, progressbar: bool
) -> GammaSelection:
    """The fit along the grid with the best certificate."""
    check_certifiable(record)
    if record.tuned_prior:
        raise ValueError(TUNED)
    shares = row_shares(problem.pairs)
    grid = certificate_gammas(shares) if gammas is None else gamma_grid(shares, gammas)
    fits = list(
        track(fits_along_gamma(problem, grid, method), f"{METHODS[method]} along gamma", grid.size, progressbar)
    )
    table = _training_table(fits, record)
    best = int(np.nanargmax(table["certified_auc"].to_numpy()))
    return _without_folds(table, fits[best], "certificate", METHODS[method])


def _by_coverage(problem: Problem, record: Provenance, progressbar: bool) -> GammaSelection:
    """The path to the calibrated gamma as a table."""
    with LateBar("EP along gamma", show=progressbar) as bar:
        choice = coverage_gamma(problem, LEVEL, callback=lambda done: bar.update(done, max(done, 5)))
    table = _training_table(choice.fits, record).assign(coverage_ratio=[at.ratio for at in choice.path])
    return _without_folds(table.sort_values("gamma", ignore_index=True), choice.fit, "coverage", "EP")


def _without_folds(table: pd.DataFrame, final: Fit, criterion: str, method: str) -> GammaSelection:
    none, no_auc = np.empty((0, final.problem.n), dtype=np.intp), np.empty((len(table), 0, 0))
    return GammaSelection(table, final.problem.gamma, final, criterion, method, none, no_auc)


def _training_table(fits: Sequence[Fit], record: Provenance) -> pd.DataFrame:
    nothing = dict.fromkeys(("auc", "se", "expected_auc", "loss", "loss_se"), np.nan)
    rows = [{"gamma": each.problem.gamma, **nothing, "within": False, **_row(each, record)} for each in fits]
    return pd.DataFrame(rows)


def _row(each: Fit, record: Provenance) -> dict[str, Any]:
    """What is known of a fit without folds; no certificate where there is no bound for what is compared."""
    result = ArrayResult(each, record)
    return {
        "training_auc": 1.0 - result.mean_risk.value,
        "log_evidence": each.log_evidence,
        "divergence": each.divergence,
        "certified_auc": certified_auc(result, EPSILON, 1),
        "converged": each.converged,
    }


def _tell_unconverged(selection: GammaSelection, gammas: ArrayLike | None) -> None:
    """Of the grid only what was chosen matters; of given gammas, and of a certificate's or a path's, all do."""
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


# -- tempering SMC ---------------------------------------------------------------------------------------------------


def _by_tempering(
    model: pm.Model,
    gammas: ArrayLike | None,
    folds: int,
    groups: ArrayLike | None,
    rng: np.random.Generator,
    progressbar: bool,
) -> GammaSelection:
    target = tempered_model(model)
    choice, at = choose_tempered(target, gammas, folds, groups=groups, rng=rng, progressbar=progressbar)
    table, fold_auc = _held_out_table(choice.candidates, [_tempered_row(at(each.gamma)) for each in choice.candidates])
    refit = at(choice.gamma).draws(model, target.fitted_to, rng)
    return GammaSelection(table, choice.gamma, refit, "auc", "SMC", choice.folds, fold_auc)


def _tempered_row(at: Tempered) -> dict[str, Any]:
    return {
        "training_auc": 1.0 - at.expected_risk,
        "log_evidence": at.log_evidence,
        "divergence": -at.gamma * at.expected_risk - at.log_evidence,
        "certified_auc": np.nan,
        "converged": True,
    }


# -- both ------------------------------------------------------------------------------------------------------------


def _held_out_table(candidates: Sequence[Candidate], rows: Sequence[dict[str, Any]]) -> tuple[pd.DataFrame, FloatArray]:
    auc, expected = (np.array([getattr(each, name) for each in candidates]) for name in ("auc", "expected_auc"))
    errors = paired_errors(auc)
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
    """Groups of the scores of several terms, one term after the other: terms of one length are about the same rows."""
    sizes = [term.labels.size for term in terms]
    same = len(set(sizes)) == 1
    if groups is None:
        return np.tile(np.arange(sizes[0]), len(terms)) if same else None
    given = np.asarray(groups, dtype=None if hasattr(groups, "__array__") else object)
    return np.tile(given, len(terms)) if same and given.shape == (sizes[0],) else groups

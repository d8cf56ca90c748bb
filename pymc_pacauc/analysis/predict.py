"""Scores of new observations, with their uncertainty.

A score has no unit: only the order matters, and for linear scores the length of theta is not identified. Statements
about new rows are therefore relative: the probability that one scores higher than another, and ranks among others.

Every result contains how a row becomes a score (:mod:`pymc_pacauc.problem.score_function`); scores that are not linear
are computed by the model (:mod:`pymc_pacauc.model.score_function`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.traversal import ancestors
from scipy.special import ndtr

from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.deployed import FIT, MEAN
from pymc_pacauc.model.gp import check_gp, conditional_draws, predict_gp
from pymc_pacauc.model.nested import NestedApproximation, mean_points
from pymc_pacauc.model.results import as_result, by_chain_and_draw, dataset_of, group_of
from pymc_pacauc.model.score_function import Groups, ModelScores, draw_groups, input_of, read_scores
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.provenance import fingerprint
from pymc_pacauc.problem.score_function import Input, NewRows, ScoreFunction, linear_scores, write_score

ABOVE = "probability_above"


def predict_scores(
    result: Any,
    X_new: ArrayLike | Mapping[str, ArrayLike],
    *,
    versus: ArrayLike | Mapping[str, ArrayLike] | None = None,
    summary: bool = False,
    draws: int = 1000,
    gp: Any = None,
    var_name: str | None = None,
    new_groups: str = "refuse",
    model: pm.Model | None = None,
    random_seed: Any = None,
) -> Any:
    """Compute the scores of new rows under the posterior.

    Parameters
    ----------
    result : EPApproximation, InferenceData, DataTree or Dataset
        Result of ``pm.fit(method=pac.EP())`` or ``pm.sample``, or draws read from a file.
    X_new : array-like, DataFrame, Series, DataArray, or mapping from names to these
        New rows of the model's inputs: of its ``pm.Data`` (for several, a mapping from their names), or of its constant
        matrix. One dimension is a single row. Named columns are matched with names in the model: the coords of the
        ``pm.Data``, or of the coefficients that its columns multiply. Where the model has none, named columns are
        refused: pass a NumPy array, which is taken by position.
        Codes of groups, ``theta[group]``, may be given as labels where the first dimension of theta has such coords.
    versus : like X_new, optional
        Rows to compare with: the result is about the score of each row of ``X_new`` minus that of the same row of
        ``versus``; a single row is compared with every row of the other set.
    summary : bool, default False
        Return mean and standard deviation of each row instead of draws; in closed form for an approximation.
    draws : int, default 1000
        Number of draws, for an approximation.
    gp : pm.gp.Latent or pm.gp.HSGP, optional
        The process whose prior the scores are: ``X_new`` are then new points.
    var_name : str, optional
        Name of the scores to predict, a ``pm.Deterministic`` of the model; or of coefficients among the draws, if the
        scores are ``X_new @ coefficients``.
    new_groups : {"refuse", "draw"}, default "refuse"
        For scores with coefficients by group, such as ``theta[group]`` with ``group`` a ``pm.Data`` of codes, and
        groups that the model has no coefficients for: ``"refuse"`` them, or ``"draw"`` coefficients of each
        such group from the population, that is from their prior given each draw of its parameters.
    model : pm.Model, optional
        The model of an idata; not needed for scores that are linear in the columns. If it is given and the draws
        contain their score function too, both must agree.
    random_seed : int or Generator, optional
        Seed of the draws of an approximation, of a Gaussian process, and of new groups.

    Returns
    -------
    xarray.DataArray or xarray.Dataset
        ``scores`` with dims (chain, draw, row), or with ``summary=True`` a Dataset of ``mean`` and ``sd`` with dim row
        (and class, for a score for each class, in the order of sorted labels), and with ``versus`` of
        ``probability_above``: the posterior probability of the higher score, a tie of two draws counting one half. Rows
        of a DataFrame keep their index. Draws of an approximation, reloaded ones too, carry the
        exact mean of each row's score, the one to deploy, as the coordinate ``mean_score``, which
        :func:`~pymc_pacauc.roc` and :func:`~pymc_pacauc.choose_threshold` use; so do those of a Gaussian process, that
        of its mean given each draw.

    Raises
    ------
    ValueError
        If ``X_new`` does not have the columns of the model, names groups the model does not know, or the score function
        of ``result`` is not known and ``model`` is not given.

    See Also
    --------
    summary : Ranks of rows, and the probability of being among the highest, of draws of scores.
    export : The score as JSON, to be used without this package.
    choose_threshold : A threshold for the scores.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> pac.predict_scores(approx, [[1.0, 0.0], [0.0, 1.0]], draws=500, random_seed=1).shape
    (1, 500, 2)
    >>> predicted = pac.predict_scores(approx, [[1.0, 0.0], [0.0, 1.0]], summary=True)
    >>> bool(predicted["mean"][0] > predicted["mean"][1])
    True
    >>> above = pac.predict_scores(approx, [1.0, 0.0], versus=[0.0, 0.5], summary=True)["probability_above"]
    >>> bool(above[0] > 0.9)
    True
    """
    source = _source(result, model, None if gp is not None else var_name, gp)
    options: dict[str, Any] = {"versus": versus, "summary": summary, "draws": draws, "new_groups": new_groups}
    if not source.function.classes:
        return _predicted(source, X_new, **options, random_seed=random_seed, gp=gp)
    seed = int(np.random.default_rng(random_seed).integers(2**31))  # the same draws for all classes
    found = [_predicted(each, X_new, **options, random_seed=seed) for each in source.by_class()]
    return xr.concat(found, "class", coords="different", compat="equals").transpose(..., "row", "class")


def _predicted(
    source: _Source,
    X_new: Any,
    *,
    versus: Any,
    summary: bool,
    draws: int,
    new_groups: str,
    random_seed: Any,
    gp: Any = None,
) -> Any:
    """Predict one score."""
    read = source.function.rows if gp is None else partial(_points, source, gp)
    new, count = read(X_new), 0
    if versus is not None:
        new = new.beside(read(versus))
        count = len(new.labels) // 2
    if gp is not None:
        scores = _process(source, gp, new, summary and not count, draws, random_seed)
        if isinstance(scores, xr.Dataset):
            return scores
    elif summary and source.gaussian and source.unknown_groups(new) is None:
        return _moments(source, new, count)
    else:
        scores = _drawn(source, new, draws, new_groups, random_seed)
    scores = _differences(scores, count) if count else scores
    return _moments_of_draws(scores) if summary else scores


def export(
    result: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    covariance: bool = True,
    var_name: str | None = None,
    model: pm.Model | None = None,
) -> dict[str, Any]:
    """Write a score that is linear in its columns as JSON, which NumPy alone can score new rows by.

    Parameters
    ----------
    result : EPApproximation, InferenceData, DataTree, Dataset, GammaSelection, EvidenceMaximum, or estimator
        An approximation, draws, a file of draws, or an ``AUCClassifier`` or ``ConcordanceEstimator``.
    path : path-like, optional
        Where to write it.
    covariance : bool, default True
        Whether to write the covariance of the weights, for standard deviations of scores; with d columns d^2 numbers.
    var_name, model : str and pm.Model, optional
        As in :func:`predict_scores`.

    Returns
    -------
    dict
        In the file: ``columns`` and ``inputs`` (names), ``centre`` and ``scale``, ``weights`` and ``intercept``
        (posterior means), ``covariance`` (of the weights and, last, the intercept), ``gamma``, ``provenance``, and
        ``how_to_score``, the lines of NumPy that score rows: ``((rows - centre) / scale) @ weights + intercept``, the
        ``mean`` of :func:`predict_scores` or the estimator's ``decision_function`` (``predict`` of risks).

    Raises
    ------
    ValueError
        Where scores are not linear in the columns: Gaussian processes, kernel features, coefficients by group,
        one-vs-rest.

    See Also
    --------
    predict_scores : Score new rows with the posterior itself.
    scorecard : Round the score to whole points.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> held = pac.export(pac.AUCClassifier(gamma=40).fit(X, X[:, 0] > 0.3))
    >>> held["columns"], held["provenance"]["n"]
    (['x0', 'x1'], 40)
    """
    if hasattr(result, "get_params"):
        if not hasattr(result, "export"):
            raise TypeError(
                f"{type(result).__name__} has no linear score to export. Of a pipeline export the last step, "
                "pac.export(pipeline[-1], path), and transform new rows by the others, pipeline[:-1].transform(X_new)."
            )
        return result.export(path, covariance=covariance)
    source = _source(result, model, var_name)
    if source.approx is not None:
        return source.approx.export(path, covariance=covariance, var_name=var_name)
    posterior, function = source.posterior, source.function
    function.of_new_columns()  # an error of its own where there are no weights
    assert posterior is not None
    theta = _theta(posterior, function)
    known = source.variables_mean
    mean = theta.mean(axis=0) if known is None else _theta(known, function)[0]
    try:
        fitted = as_result(result).fitted_to
    except TypeError:
        fitted = None  # draws by another sampler, or of a posterior alone
    spread = np.atleast_2d(np.cov(theta.T, bias=True)) if covariance else None
    return write_score(function, mean, spread, fitted, path)


# -- what is predicted from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Source:
    """A posterior, as an approximation or as draws, and how its rows become scores."""

    approx: EPApproximation | None
    posterior: xr.Dataset | None
    model: pm.Model | None
    function: ScoreFunction
    scoring: ModelScores | None  # by the model, where it is known
    exact: xr.Dataset | None  # the mean of the variables, where draws carry it
    fit: int | None  # which fit the scores are of

    @property
    def gaussian(self) -> bool:
        """Whether scores have moments in closed form: those of an approximation that is no mixture."""
        return self.approx is not None and not isinstance(self.approx, NestedApproximation)

    def by_class(self) -> list[_Source]:
        """The same for each class's score."""
        scoring = self.scoring.classes if self.scoring is not None else [None] * len(self.function.classes)
        pairs = zip(self.function.classes, scoring, strict=True)
        return [replace(self, function=function, scoring=each) for function, each in pairs]

    def unknown_groups(self, new: NewRows) -> _UnknownGroups | None:
        """The rows of groups that the model has no coefficients for; None where there are none."""
        found = []
        for k, groups in (self.scoring.groups if self.scoring is not None else {}).items():
            outside = (new.values[k] < 0) | (new.values[k] >= groups.size)
            if outside.any():
                labels, name = dict(new.unknown).get(k), self.function.inputs[k].name
                found.append(_UnknownGroups(k, name, groups, outside, labels, new.values[k]))
        if len(found) > 1:
            names = " and ".join(each.name for each in found)
            raise ValueError(f"X_new has unknown groups of {names} at the same time: predict such rows one by one.")
        return found[0] if found else None

    def scores(self, new: NewRows, posterior: xr.Dataset | None = None) -> FloatArray:
        """Scores (chain, draw, rows) at every draw."""
        posterior = self.posterior if posterior is None else posterior
        assert posterior is not None
        theta = _theta(posterior, self.function)
        if self.function.linear:
            values = self.function.scores(theta, new)
        elif self.scoring is None:
            names = ", ".join(each.name for each in self.function.inputs if each.name)
            raise ValueError(
                f"Scores that are not linear in {names or 'X_new'} are computed by the model: pass model=, that of "
                "these draws."
            )
        else:
            values = self.scoring.scores(theta, new)
        return values.reshape(posterior.sizes["chain"], posterior.sizes["draw"], len(new.labels))

    def moments(self, new: NewRows, above: int = 0) -> tuple[FloatArray, FloatArray]:
        """The mean score of an approximation, the one that is certified, and the variance of the scores.

        Of the first rows minus the last, if ``above``.
        """
        assert self.approx is not None
        assert self.scoring is not None
        part, offset = self.scoring.design(new)
        design = np.zeros((len(part), self.approx.fit.problem.d))
        places = self.approx.source.parts
        design[:, np.concatenate([np.r_[places[name]] for name, _ in self.function.variables])] = part
        if above:
            design, offset = design[:above] - design[above:], offset[:above] - offset[above:]
        posterior = self.approx.posterior
        return design @ posterior.score_mean + offset, posterior.moments_of(design, variances=True)[1]

    def exact_mean(self, new: NewRows) -> FloatArray | None:
        """The mean of the scores, where it is known exactly: scores of a fit are affine in its variables."""
        if isinstance(self.approx, NestedApproximation):  # affine given the hyper-parameters
            points, weights = mean_points(self.approx)
            return weights @ self.scores(new, points)[0]
        if self.approx is not None:
            return self.moments(new)[0]
        known = self.variables_mean
        return None if known is None else self.scores(new, known)[0, 0]

    @property
    def variables_mean(self) -> xr.Dataset | None:
        """The exact mean of the variables as if it were a draw, where draws carry that of all of them."""
        named = {name for name, _ in self.function.variables}
        return self.exact if self.exact is not None and named <= set(map(str, self.exact)) else None

    def labelled_moments(self, mean: FloatArray, sd: FloatArray, labels: NDArray[Any]) -> xr.Dataset:
        coords: dict[str, Any] = {"row": labels} | ({} if self.fit is None else {FIT: self.fit})
        return xr.Dataset({"mean": ("row", mean), "sd": ("row", sd)}, coords=coords)

    def labelled(self, values: FloatArray, labels: NDArray[Any], mean: FloatArray | None = None) -> xr.DataArray:
        drawn = {"chain": [0], "draw": np.arange(values.shape[1])} if self.posterior is None else self.posterior
        coords: dict[str, Any] = {"chain": drawn["chain"], "draw": drawn["draw"], "row": labels}
        coords |= ({} if mean is None else {MEAN: ("row", mean)}) | ({} if self.fit is None else {FIT: self.fit})
        return xr.DataArray(values, dims=("chain", "draw", "row"), coords=coords, name="scores")


def _source(result: Any, model: pm.Model | None, var_name: str | None, gp: Any = None) -> _Source:
    """Read a result and its score function: its own, or that of the model, which must agree with it."""
    result = group_of(result)
    try:
        found = as_result(result)
    except TypeError:
        found = None
    if isinstance(found, EPApproximation):
        scoring = found.scoring(var_name) if gp is None else None
        function = ScoreFunction(()) if scoring is None else scoring.function
        return _Source(found, None, found.model, function, scoring, None, _fit_of(found.fitted_to, function))
    posterior = getattr(found, "posterior", None)
    if posterior is None:
        posterior = result if isinstance(result, xr.Dataset) else dataset_of(result, "posterior")
        posterior = None if posterior is None else by_chain_and_draw(posterior)
    if posterior is None:
        raise TypeError(
            "result must be that of pm.fit(method=pac.EP()) or pm.sample(), or its posterior; got "
            f"{type(result).__name__}."
        )
    if not posterior.sizes["chain"] * posterior.sizes["draw"]:
        raise ValueError("result has no draws in its posterior: select at least one chain and draw.")
    fitted, exact = getattr(found, "fitted_to", None), getattr(found, "exact_mean", None)
    carried = getattr(found, "score_function", None) or ScoreFunction.from_stats(posterior)
    if (
        model is None
        and not (carried and (carried.linear or carried.classes))
        and pm.Model.get_context(error_if_none=False)
    ):
        model = pm.modelcontext(None)
    if gp is not None:
        return _Source(None, posterior, model, ScoreFunction(()), None, exact, _fit_of(fitted, ScoreFunction(())))
    function, scoring = _scores_of_draws(posterior, model, carried, var_name)
    of = function if var_name is not None or carried is None else carried
    return _Source(None, posterior, model, function, scoring, exact, _fit_of(fitted, of))


def _scores_of_draws(
    posterior: xr.Dataset, model: pm.Model | None, carried: ScoreFunction | None, var_name: str | None
) -> tuple[ScoreFunction, ModelScores | None]:
    if var_name is not None:
        graph = None if model is None else next((v for v in model.deterministics if v.name == var_name), None)
        if graph is not None:
            scoring = read_scores(model, graph)
            if not scoring.function.refusal or scoring.function.inputs:
                return scoring.function, scoring
        if carried is not None and carried.name == var_name:
            return carried, None
        return _coefficients(posterior, var_name), None
    if model is None:
        if carried is None:
            raise ValueError(
                "result does not contain how a row becomes a score: pass the whole idata of pm.sample(step="
                "pac.TemperingSMC()) or of approx.sample() (with more draws, if there are few of a large model), or "
                'model=; or, if the scores are X_new @ theta, var_name="theta".'
            )
        return carried, None
    scoring = read_scores(model)
    if carried is None or not (carried.linear or carried.classes) or scoring.function.classes:
        return scoring.function, scoring
    if not _agree(carried, scoring.function, posterior.isel(chain=slice(1), draw=slice(3))):
        raise ValueError(
            "model computes other scores than the model of these draws: pass that one, with the data it had, or leave "
            "model= out (the draws contain how their scores are computed)."
        )
    return carried, None


def _agree(carried: ScoreFunction, read: ScoreFunction, draws: xr.Dataset) -> bool:
    """Return whether two linear score functions have the same names and the same weights at some draws."""
    if not read.linear:
        return False
    one, other = (function.weights(_theta(draws, function)) for function in (carried, read))
    same = one.shape == other.shape and np.allclose(one, other, rtol=1e-8, atol=1e-10)
    return same and carried.names_agree(read)


def _coefficients(posterior: xr.Dataset, name: str) -> ScoreFunction:
    """Return the function of scores ``X_new @ coefficients``, by var_name."""
    if name not in posterior:
        raise ValueError(f"var_name={name!r} is not in the posterior, which has {', '.join(map(str, posterior))}.")
    held = posterior[name].transpose("chain", "draw", ...)
    labels = held[held.dims[-1]].values.tolist() if held.ndim == 3 and held.dims[-1] in held.coords else None
    numbered = labels == list(range(held.shape[-1]))
    return linear_scores(name, held.shape[2:], None if numbered else labels)


def _theta(posterior: xr.Dataset, function: ScoreFunction) -> FloatArray:
    """Flat variables of a score function (chain * draw, coefficients)."""
    draws, found = posterior.sizes["chain"] * posterior.sizes["draw"], {}
    for name, _ in function.variables:
        if name in posterior:
            values = posterior[name].transpose("chain", "draw", ...).values
            found[name] = values.reshape(draws, *values.shape[2:])
    return function.theta(found, draws)


def _fit_of(fitted: Any, function: ScoreFunction) -> int | None:
    """Return a number that identifies the fit of scores, for thresholds, which are valid for one fit only."""
    if fitted is None:
        return None
    return fingerprint([np.array([fitted.data, fitted.gamma, fitted.pairs, function.digest])])


def _drawn(source: _Source, new: NewRows, draws: int, new_groups: str, random_seed: Any) -> xr.DataArray:
    """Draw the scores of new rows."""
    if new_groups not in ("refuse", "draw"):
        raise ValueError(f'new_groups must be "refuse" or "draw"; got {new_groups!r}.')
    unknown = source.unknown_groups(new)
    if unknown is not None and new_groups == "refuse":
        raise ValueError(f'{unknown}. new_groups="draw" draws their coefficients from the population.')
    mean = source.exact_mean(new) if unknown is None else None
    if source.approx is not None:
        drawn = source.approx.sample(draws, random_seed=random_seed)
        source = replace(source, posterior=dataset_of(drawn, "posterior"))
    values = source.scores(new) if unknown is None else _scores_of_groups(source, new, unknown, random_seed)
    return source.labelled(values, new.labels, mean)


def _moments(source: _Source, new: NewRows, count: int) -> xr.Dataset:
    """Compute mean and sd of the scores by an approximation; with ``count``, of first rows minus last rows."""
    mean, variance = source.moments(new, above=count)
    found = source.labelled_moments(mean, np.sqrt(variance), new.labels[: count or None])
    if not count:
        return found
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(variance > 0, ndtr(mean / np.sqrt(variance)), 0.5 + 0.5 * np.sign(mean))
    return found.drop_vars(FIT, errors="ignore").assign({ABOVE: ("row", above)})


def _differences(scores: xr.DataArray, count: int) -> xr.DataArray:
    """Subtract the scores of the last rows from those of the first; thresholds do not apply to differences."""
    first, second = scores[..., :count], scores[..., count:]
    found = first.drop_vars([MEAN, FIT], errors="ignore").copy(data=first.values - second.values).rename("difference")
    if MEAN not in scores.coords:
        return found
    return found.assign_coords({MEAN: ("row", first[MEAN].values - second[MEAN].values)})


def _moments_of_draws(scores: xr.DataArray) -> xr.Dataset:
    mean = scores[MEAN] if MEAN in scores.coords else scores.mean(("chain", "draw"))
    coords = {name: scores[name] for name in ("row", FIT) if name in scores.coords}
    sd = scores.std(("chain", "draw"))
    found = xr.Dataset({"mean": ("row", mean.values), "sd": ("row", sd.values)}, coords=coords)
    if scores.name != "difference":
        return found
    return found.assign({ABOVE: ("row", (0.5 + 0.5 * np.sign(scores.values)).mean(axis=(0, 1)))})


# -- groups ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _UnknownGroups:
    """Rows of groups that the model has no coefficients for: codes of the input at ``place``."""

    place: int
    name: str
    groups: Groups
    rows: NDArray[np.bool_]
    labels: tuple[Any, ...] | None
    codes: NDArray[Any]

    def __str__(self) -> str:
        codes: Any = self.labels or np.unique(self.codes[self.rows])
        shown = ", ".join(map(str, codes[:5]))
        size, names = self.groups.size, ", ".join(self.groups.names) or "the score"
        known = ", ".join(map(str, (self.groups.labels or ())[:5])) if self.labels else f"0 to {size - 1}"
        what = "labels" if self.labels else "codes"
        return (
            f"{self.name} has {what} that the model has no coefficients for ({shown}): {names} has those of {size} "
            f"groups, {known}"
        )


def _scores_of_groups(source: _Source, new: NewRows, unknown: _UnknownGroups, random_seed: Any) -> FloatArray:
    """Compute scores of rows of which some belong to new groups, which take the codes of known ones, in batches."""
    posterior, model, groups = source.posterior, source.model, unknown.groups
    assert posterior is not None
    assert model is not None
    if not groups.names:
        raise ValueError(f"{unknown}, and no free variable of the model is indexed by them: they cannot be drawn.")
    rng = np.random.default_rng(random_seed)
    codes = np.unique(unknown.codes[unknown.rows])

    def part(chosen: NDArray[np.bool_], places: NDArray[np.intp], drawn: xr.Dataset) -> FloatArray:
        values = [places if k == unknown.place else v[chosen] for k, v in enumerate(new.values)]
        return source.scores(replace(new, values=tuple(values), labels=new.labels[chosen]), drawn)

    scores = np.empty((posterior.sizes["chain"], posterior.sizes["draw"], len(new.labels)))
    if not unknown.rows.all():
        scores[..., ~unknown.rows] = part(~unknown.rows, unknown.codes[~unknown.rows], posterior)
    for start in range(0, codes.size, groups.size):
        some = codes[start : start + groups.size]
        chosen = unknown.rows & np.isin(unknown.codes, some)
        drawn = draw_groups(model, groups, posterior, rng)
        scores[..., chosen] = part(chosen, np.searchsorted(some, unknown.codes[chosen]), drawn)
    return scores


# -- Gaussian processes ----------------------------------------------------------------------------------------------


def _points(source: _Source, gp: Any, X_new: Any) -> NewRows:
    """Return new points of a process; columns are matched by name where the model's ``pm.Data`` has names."""
    dimension = check_gp(gp)
    known = (
        Input("", (dimension,)) if source.model is None else input_of(source.model, getattr(gp, "X", None), dimension)
    )
    return ScoreFunction((replace(known, name=""),)).rows(X_new)


def _process(source: _Source, gp: Any, new: NewRows, summary: bool, draws: int, random_seed: Any) -> Any:
    """Compute scores of a Gaussian process at new points."""
    if source.approx is None and source.model is None:
        raise ValueError("gp= with draws needs their model: pass model=.")
    points, labels, rng = new.values[0], new.labels, np.random.default_rng(random_seed)
    if isinstance(source.approx, NestedApproximation):  # a process given the hyper-parameters
        approx = source.approx
        known, weights = mean_points(approx)
        with approx.as_fitted():
            mean = weights @ conditional_draws(approx.model, gp, known, points, rng)[1][0]
            drawn = dataset_of(approx.sample(draws, random_seed=random_seed), "posterior")
            values = conditional_draws(approx.model, gp, drawn, points, rng)[0]
        scores = source.labelled(values, labels, mean)
        return _moments_of_draws(scores) if summary else scores
    if source.approx is not None:
        mean, spread = predict_gp(source.approx, gp, points, covariance=not summary)
        if summary:
            return source.labelled_moments(mean, np.sqrt(spread), labels)
        values = rng.multivariate_normal(mean, spread, size=draws, method="eigh")
        return source.labelled(values[None], labels, mean)
    assert source.posterior is not None
    assert source.model is not None
    values, means = conditional_draws(source.model, gp, source.posterior, points, rng)
    feeding = {rv.name for rv in source.model.free_RVs if rv in set(ancestors([gp.f]))}
    if source.exact is not None and feeding <= set(map(str, source.exact)):
        means = conditional_draws(source.model, gp, source.exact, points, rng)[1]
    scores = source.labelled(values, labels, means.mean(axis=(0, 1)))
    return _moments_of_draws(scores) if summary else scores

"""Scores of new observations, with their uncertainty.

A score has no unit: only the order matters, and for linear scores the length of theta is not identified. Statements
about new rows are therefore relative: the probability that one scores higher than another, and ranks among others.

Every result contains how a row becomes a score (:mod:`pymc_pacauc.problem.score_function`); scores that are not linear
are computed by the model (:mod:`pymc_pacauc.model.score_function`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.approximation import EPApproximation, in_theta
from pymc_pacauc.model.deployed import FIT, MEAN
from pymc_pacauc.model.gp import check_gp, conditional_draws, predict_gp
from pymc_pacauc.model.nested import NestedApproximation
from pymc_pacauc.model.results import Draws, as_result, by_chain_and_draw, dataset_of, group_of
from pymc_pacauc.model.score_function import input_of, read_scores
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.provenance import fingerprint
from pymc_pacauc.problem.score_function import NewRows, ScoreFunction, linear_scores, write_score


def predict_scores(
    result: Any,
    X_new: ArrayLike | Mapping[str, ArrayLike],
    *,
    summary: bool = False,
    draws: int = 1000,
    gp: Any = None,
    var_name: str | None = None,
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
    summary : bool, default False
        Return mean and standard deviation of each row instead of draws; in closed form for an approximation.
    draws : int, default 1000
        Number of draws, for an approximation.
    gp : pm.gp.Latent or pm.gp.HSGP, optional
        The process whose prior the scores are: ``X_new`` are then new points.
    var_name : str, optional
        Name of the scores to predict, a ``pm.Deterministic`` of the model; or of coefficients among the draws, if the
        scores are ``X_new @ coefficients``.
    model : pm.Model, optional
        The model of an idata; not needed for scores that are linear in the columns. If it is given and the draws
        contain their score function too, both must agree.
    random_seed : int or Generator, optional
        Seed of the draws of an approximation and of a Gaussian process.

    Returns
    -------
    xarray.DataArray or xarray.Dataset
        ``scores`` with dims (chain, draw, row), or with ``summary=True`` a Dataset of ``mean`` and ``sd`` with dim row
        (and class, for a score for each class, in the order of sorted labels). Rows of a DataFrame keep their index.
        The share of draws in which one row scores higher than another is the posterior probability that it ranks
        higher. Draws of an approximation, reloaded ones too, carry the
        exact mean of each row's score, the one to deploy, as the coordinate ``mean_score``, which
        :func:`~pymc_pacauc.roc` and :func:`~pymc_pacauc.choose_threshold` use; so do those of a Gaussian process, that
        of its mean given each draw.

    Raises
    ------
    ValueError
        If ``X_new`` does not have the columns of the model, names groups the model does not know, or the score function
        of ``result`` is not known and ``model`` is not given.
    TypeError
        If ``result`` is not of a kind described above.

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
    """
    source = _source(result, model, var_name, gp)
    if not source.function.classes:
        return _predicted(source, X_new, summary, draws, random_seed)
    seed = int(np.random.default_rng(random_seed).integers(2**31))  # the same draws for all classes
    sources = [replace(source, function=each) for each in source.function.classes]
    found = [_predicted(each, X_new, summary, draws, seed) for each in sources]
    return xr.concat(found, "class", coords="different", compat="equals").transpose(..., "row", "class")


def _predicted(source: _Source, X_new: Any, summary: bool, draws: int, random_seed: Any) -> Any:
    """Predict one score: in closed form, or by draws."""
    new = source.function.rows(X_new)
    coords: dict[str, Any] = {"row": new.labels} | ({} if source.fit is None else {FIT: source.fit})
    found = source.moments(new) if summary else None
    if found is None:
        predict = _draw_scores if source.gp is None else _draw_process
        posterior, values, mean = predict(source, new, draws, random_seed)
        if not summary:
            coords |= {name: posterior[name] for name in ("chain", "draw")}
            coords |= {} if mean is None else {MEAN: ("row", mean)}
            return xr.DataArray(values, dims=("chain", "draw", "row"), coords=coords, name="scores")
        found = values.mean(axis=(0, 1)) if mean is None else mean, values.var(axis=(0, 1))
    return xr.Dataset({"mean": ("row", found[0]), "sd": ("row", np.sqrt(found[1]))}, coords=coords)


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
    TypeError
        If ``result`` is not of a kind described above.

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
    if (approx := source.approx) is not None:
        size = sum(int(np.prod(shape)) for _, shape in source.function.variables)
        weights = in_theta(approx, source.function, np.eye(size))
        spread = approx.posterior.moments_of(weights)[1] if covariance else None
        return write_score(source.function, weights @ approx.posterior.score_mean, spread, approx.fitted_to, path)
    source.function.of_new_columns()  # an error of its own where there are no weights
    theta, known = source.function.theta(source.result.posterior), source.means
    mean = theta.mean(axis=0) if known is None else source.function.theta(known[0])[0]
    spread = np.atleast_2d(np.cov(theta.T, bias=True)) if covariance else None
    fitted = None if source.fit is None else source.result.fitted_to
    return write_score(source.function, mean, spread, fitted, path)


# -- what is predicted from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Source:
    """A posterior, as an approximation or as draws, and how a row becomes a score under it.

    ``own`` says that the scores are those of the fit, not others that ``var_name`` names.
    """

    result: EPApproximation | Draws
    function: ScoreFunction
    model: pm.Model | None
    gp: Any
    fit: int | None
    own: bool

    @property
    def approx(self) -> EPApproximation | None:
        return self.result if isinstance(self.result, EPApproximation) else None

    def draws(self, draws: int, random_seed: Any) -> xr.Dataset:
        """Return the posterior itself, or draws of the approximation."""
        drawn = None if self.approx is None else self.approx.sample(draws, random_seed=random_seed)
        found = self.result.posterior if drawn is None else dataset_of(drawn, "posterior")
        assert found is not None
        return found

    @property
    def means(self) -> tuple[xr.Dataset, FloatArray] | None:
        """Points, as if they were draws, and weights: scores that are affine have the mean of their values at these."""
        if isinstance(self.result, EPApproximation):
            return self.result._mean_points()
        exact = self.result.exact_mean
        used = {name for name, _ in self.function.variables}
        if self.gp is not None and self.model is not None:
            used = {rv.name for rv in self.model.free_RVs if rv in set(ancestors([self.gp.f]))}
        return (exact, np.ones(1)) if exact is not None and used <= set(exact) else None

    def moments(self, new: NewRows) -> tuple[FloatArray, FloatArray] | None:
        """Compute the mean score of an approximation, the one that is certified, and the variance of the scores.

        None where they have no closed form.
        """
        approx, function = self.approx, self.function
        if approx is None or isinstance(approx, NestedApproximation):
            return None
        if self.gp is not None:
            return predict_gp(approx, self.gp, new.values[0])
        if (affine := function.design(new)) is None:
            return None
        part, offset = affine
        design = in_theta(approx, function, part)
        return design @ approx.posterior.score_mean + offset, approx.posterior.moments_of(design, variances=True)[1]


def _source(result: Any, model: pm.Model | None, var_name: str | None, gp: Any = None) -> _Source:
    """Read a result and its score function: its own, or that of the model, which must agree with it."""
    result = group_of(result)
    try:
        found = as_result(result)
    except TypeError:  # perhaps draws without a record of what they were fitted to
        found = None
    if isinstance(found, EPApproximation):
        function = found.scoring(var_name) if gp is None else _points_of(gp, found.model)
        own = var_name is None or var_name == found.score_function.name
        return _Source(found, function, found.model, gp, _fit_of(found, function, gp), own)
    found, posterior = _draws_of(result, found)
    carried = found.score_function
    if model is None and not (carried and (carried.linear or carried.classes)):
        model = pm.modelcontext(None) if pm.Model.get_context(error_if_none=False) else None
    if gp is not None:
        function = _points_of(gp, model)
    elif var_name is not None:
        function = _named_scores(posterior, model, carried, var_name)
    else:
        function = _scores_of_draws(model, carried)
    of = function if var_name is not None or carried is None else carried
    return _Source(found, function, model, gp, _fit_of(found, of, gp), var_name is None or function is carried)


def _draws_of(result: Any, found: Any) -> tuple[Any, xr.Dataset]:
    """Return ``found``, or the draws in ``result`` where it has no posterior; and that posterior, not empty."""
    if getattr(found, "posterior", None) is None:
        held = result if isinstance(result, xr.Dataset) else dataset_of(result, "posterior")
        stats = found.stats if isinstance(found, Draws) else xr.Dataset()
        found = Draws(None if held is None else by_chain_and_draw(held), stats)
    posterior = found.posterior
    if posterior is None:
        given = type(result).__name__
        raise TypeError(f"result must be that of pm.fit(method=pac.EP()) or pm.sample(), or a posterior; got {given}.")
    if not posterior.sizes["chain"] * posterior.sizes["draw"]:
        raise ValueError("result has no draws in its posterior: select at least one chain and draw.")
    return found, posterior


def _points_of(gp: Any, model: pm.Model | None) -> ScoreFunction:
    """Return the function of the points of a process; columns have the names that the model's ``pm.Data`` has."""
    return ScoreFunction((input_of(model, getattr(gp, "X", None), check_gp(gp)),))


def _scores_of_draws(model: pm.Model | None, carried: ScoreFunction | None) -> ScoreFunction:
    """Return the function that the draws carry, or that of the model; both must agree where both are known."""
    read = None if model is None else read_scores(model)
    known = [each for each in (carried, read) if each is not None]
    if not known:
        raise ValueError(
            "result does not contain how a row becomes a score: pass the whole idata of pm.sample(step="
            "pac.TemperingSMC()) or of approx.sample() (with more draws, if there are few of a large model), or "
            'model=; or, if the scores are X_new @ theta, var_name="theta".'
        )
    if read is None or carried is None:
        return known[0]
    if read.classes or not (carried.linear or carried.classes):
        return read
    if not carried.agrees(read):
        raise ValueError(
            "model computes other scores than the model of these draws: pass that one, with the data it had, or leave "
            "model= out (the draws contain how their scores are computed)."
        )
    return carried


def _named_scores(
    posterior: xr.Dataset, model: pm.Model | None, carried: ScoreFunction | None, var_name: str
) -> ScoreFunction:
    """Return the function of the Deterministic of this name, or of ``X_new @ coefficients`` of this name."""
    graph = None if model is None else next((v for v in model.deterministics if v.name == var_name), None)
    if model is not None and graph is not None and not (named := read_scores(model, graph)).refusal:
        return named
    return carried if carried and carried.name == var_name else _coefficients(posterior, var_name)


def _coefficients(posterior: xr.Dataset, name: str) -> ScoreFunction:
    """Return the function of scores ``X_new @ coefficients``, by var_name."""
    if name not in posterior:
        raise ValueError(f"var_name={name!r} is not in the posterior, which has {', '.join(map(str, posterior))}.")
    held = posterior[name].transpose("chain", "draw", ...)
    labels = held[held.dims[-1]].values.tolist() if held.ndim == 3 and held.dims[-1] in held.coords else None
    numbered = labels == list(range(held.shape[-1]))
    return linear_scores(name, held.shape[2:], None if numbered else labels)


def _fit_of(result: EPApproximation | Draws, function: ScoreFunction, gp: Any) -> int | None:
    """Return a number that identifies the fit of scores, for thresholds, which are valid for one fit only."""
    if isinstance(result, Draws) and "fitted_gamma" not in result.stats:
        return None
    fitted, of = result.fitted_to, function if gp is None else ScoreFunction()
    return fingerprint([np.array([fitted.data, fitted.gamma, fitted.pairs, of.digest])])


# -- draws -----------------------------------------------------------------------------------------------------------


def _draw_scores(
    source: _Source, new: NewRows, draws: int, random_seed: Any
) -> tuple[xr.Dataset, FloatArray, FloatArray | None]:
    """Draw the scores of new rows: the posterior, scores (chain, draw, rows), and their exact mean or None."""
    function, posterior = source.function, source.draws(draws, random_seed)
    values = function.scores(function.theta(posterior), new)
    values = values.reshape(posterior.sizes["chain"], posterior.sizes["draw"], len(new.labels))
    if source.means is None or not (source.own or function.design(new) is not None):
        return posterior, values, None
    points, weights = source.means
    return posterior, values, weights @ function.scores(function.theta(points), new)


def _draw_process(source: _Source, new: NewRows, draws: int, random_seed: Any) -> tuple[xr.Dataset, FloatArray, Any]:
    """Draw the scores of a Gaussian process at new points; also the mean without the noise of these draws."""
    if source.model is None:
        raise ValueError("gp= with draws needs their model: pass model=.")
    rng, points = np.random.default_rng(random_seed), new.values[0]
    with nullcontext() if source.approx is None else source.approx.as_fitted():
        posterior = source.draws(draws, random_seed)
        values, means = conditional_draws(source.model, source.gp, posterior, points, rng)
        if source.means is None:
            return posterior, values, means.mean(axis=(0, 1))
        known, weights = source.means
        means = conditional_draws(source.model, source.gp, known, points, rng)[1]
    return posterior, values, weights @ means[0]

"""Average of scores under three priors (linear, additive, Gaussian process), with weights by stacking.

No prior is best for all data: a linear score where rows are few or effects are linear, a sum of functions where they
are not, a Gaussian process where columns interact. Their errors differ, so that the average is better than choosing
one. Each *part* is a posterior with its own gamma, whose score is standardised over the training rows.

*Stacking.* The cross-fitted scores of the parts, which calibration needs anyway, are the columns of another ranking
problem, whose coefficients have the prior N(1, 0.5^2) (towards equal weights). The positive part of its posterior mean,
at gamma = twice the comparison's size, normalised to sum 1, gives the weights. Cross-fitted scores of the average use
weights computed without the fold.

References: Wolpert (1992), doi:10.1016/S0893-6080(05)80023-1; Breiman (1996), doi:10.1007/BF00117832.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.results import ADVICE
from pymc_pacauc.estimator.calibration import calibration_folds, cross_fit
from pymc_pacauc.estimator.posterior import TUNING_ROWS, Recipe, ScorePosterior, fit_part
from pymc_pacauc.fitting import fit
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.problem.score_function import ScoreFunction
from pymc_pacauc.tune.gamma import CENTRE, GammaChoice, paired_errors, pairs_of_few

PARTS = ("gaussian", "additive", "gp")
# Prior standard deviation of a weight, whose mean is 1. Doubled, the AUC on unseen data is the same to 0.001.
WEIGHT_SD = 0.5
BEHIND = 3.0  # paired standard errors of folds by which a part that stays behind the best one is left out


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedPosterior(ScorePosterior):
    """Posterior of the mean of the parts' standardised scores; whatever else it has is that of the linear part.

    Attributes
    ----------
    parts : tuple of ScorePosterior
        The linear one first.
    names : tuple of str
        Their priors.
    weights : array of shape (parts,)
        Not negative; they sum to one.
    center, unit : array of shape (parts,)
        Mean and standard deviation of each part's scores of the training rows.
    """

    parts: tuple[ScorePosterior, ...]
    names: tuple[str, ...]
    weights: FloatArray
    center: FloatArray
    unit: FloatArray

    uncertified = (
        'The score of prior="auto" averages parts by weights that were chosen on the rows it would be certified with, '
        'and one part has a tuned prior. Certified is a score drawn from a posterior alone: fit with prior="gaussian" '
        'or "additive"; or certify any score on rows it has not seen, by pac.certify.holdout.'
    )

    def score(self, X: FloatArray) -> FloatArray:
        return self._averaged([part.score(X) for part in self.parts], self.center)

    @cached_property
    def training_scores(self) -> FloatArray:
        return self._averaged([part.training_scores for part in self.parts], self.center)

    def std(self, X: FloatArray) -> FloatArray:
        """Return an upper bound on the standard deviation, as if errors of the parts were perfectly correlated."""
        return self._averaged([part.std(X) for part in self.parts], np.zeros(len(self.parts)))

    def _averaged(self, scores: Sequence[FloatArray], center: FloatArray) -> FloatArray:
        return (np.column_stack(scores) - center) @ (self.weights / self.unit)

    def shapes(self) -> list[FloatArray]:
        return next((part for part in self.parts if part.features is not None), self.parts[0]).shapes()

    def score_function(self, features: Sequence[str]) -> ScoreFunction:
        refusal = 'The score of prior="auto" is not linear in X: use the estimator\'s decision_function(X).'
        return ScoreFunction((), refusal=refusal)

    def without_data(self) -> Self:
        parts = tuple(part.without_data() for part in self.parts)
        return replace(super().without_data(), parts=parts, held=None)


def fit_scores(
    X: FloatArray,
    pairs: Pairs,
    recipe: Recipe,
    *,
    sample_weight: FloatArray | None,
    folds: int,
    groups: NDArray[np.intp] | None,
    rng: np.random.Generator,
) -> ScorePosterior:
    """Fit the scores of these rows; ``sample_weight`` is for the scale of the columns, ``pairs`` hold their own."""
    given: dict[str, Any] = {"sample_weight": sample_weight, "groups": groups, "rng": rng}
    context = copy_context()
    context.run(ADVICE.set, recipe.advice)
    return context.run(_fit_scores, X, pairs, recipe, folds, given)


def _fit_scores(X: FloatArray, pairs: Pairs, recipe: Recipe, folds: int, given: dict[str, Any]) -> ScorePosterior:
    if recipe.prior != "auto":
        return fit_part(X, pairs, recipe, folds=folds, **given)
    names = [name for name in PARTS if name == "gaussian" or (np.ptp(X, axis=0).any() and X.shape[1] <= len(X))]
    parts: list[ScorePosterior] = []
    for name in names:
        recipe.tell(f'part "{name}"')
        shared = parts[0].choice.folds if parts and isinstance(parts[0].choice, GammaChoice) else folds
        parts.append(fit_part(X, pairs, replace(recipe, prior=name), folds=shared, **given))
    kept = [k for k, near in enumerate(_not_behind(parts)) if near or k == 0]
    parts, names = [parts[k] for k in kept], [names[k] for k in kept]
    recipe.tell("weighting the parts by rows left out")
    scores = [part.training_scores for part in parts]
    center, unit = np.mean(scores, axis=1), np.std(scores, axis=1)
    averaged = AveragedPosterior(
        **{field.name: getattr(parts[0], field.name) for field in fields(ScorePosterior)},
        parts=tuple(parts),
        names=tuple(names),
        weights=np.full(len(parts), 1.0 / len(parts)),
        center=center,
        unit=np.where(unit > 0.0, unit, 1.0),
    )
    averaged = replace(averaged, record=replace(averaged.record, tuned_prior=True))
    if folds == 0:
        return averaged
    assigned = calibration_folds(parts[0], folds)
    held = np.array([cross_fit(part, folds, assigned) for part in parts])  # (parts, assignments, rows)
    tuning = pairs_of_few(pairs, TUNING_ROWS, np.argsort(scores[0], kind="stable"))
    averaged = replace(averaged, weights=stacked_weights(held.mean(axis=1).T, tuning))
    unit_of_all = float(np.std(averaged.training_scores)) or 1.0
    return replace(averaged, held=stacked_scores(held, assigned, tuning) / unit_of_all)


def _not_behind(parts: Sequence[ScorePosterior]) -> NDArray[np.bool_]:
    """Return which parts are less than ``BEHIND`` standard errors worse than the best, in the folds of gamma."""
    choices = [part.choice for part in parts if isinstance(part.choice, GammaChoice)]
    if len(choices) < len(parts):
        return np.ones(len(parts), dtype=bool)
    errors = paired_errors(np.array([each.candidates[each.chosen].auc for each in choices]))
    return errors.loss <= BEHIND * errors.se


def stacked_scores(held: FloatArray, assigned: NDArray[np.intp], pairs: Pairs) -> FloatArray:
    """Average held-out scores (parts, assignments, rows), each fold by weights computed without it.

    Returns
    -------
    ndarray, shape (assignments, rows)
        Averaged scores.
    """
    mean, found = held.mean(axis=1).T, np.empty(held.shape[1:])
    for scores, fold, row in zip(held.swapaxes(0, 1), assigned, found, strict=True):
        for k in np.unique(fold):
            row[fold == k] = stacked_weights(mean, pairs.among(fold != k)) @ scores[:, fold == k]
    return found


def stacked_weights(scores: FloatArray, pairs: Pairs) -> FloatArray:
    """Weights of columns of scores by which ``scores @ weights`` ranks the pairs, shrunk to equal ones.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> y = np.arange(60) % 2
    >>> scores = np.random.default_rng(1).normal(size=(60, 2)) + np.column_stack([2 * y, 0 * y])
    >>> weights = stacked_weights(scores, bipartite(y))
    >>> bool(weights[0] > 0.7), float(weights.sum().round(12))
    (True, 1.0)
    """
    parts = scores.shape[1]
    if parts > 1 and pairs.n_pairs > 0:
        gamma = CENTRE * row_shares(pairs).size
        problem = linear_gaussian_problem(scores, pairs, gamma, prior_mean=1.0, prior_covariance=WEIGHT_SD**2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # then weights are equal
            found = fit(problem.of_compared_rows(), accuracy="path", n_jobs=1)
        weights = np.maximum(found.posterior.mean, 0.0)
        if found.converged and weights.any():
            return weights / weights.sum()
    return np.full(parts, 1.0 / parts)

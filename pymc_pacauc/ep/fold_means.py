"""Scores of rows under posteriors that have not seen their fold, of which only the means are found anew.

At the same gamma, a posterior without a fold has about the covariance of the one with it. So the standard deviations of
the score differences are taken from the fit, and the mean alone is found anew, by Newton's steps with the fit's own
covariance, mixed (:mod:`pymc_pacauc.ep.start`, :mod:`~pymc_pacauc.ep.loop`): each costs a pass over the pairs,
and no product of matrices.

Steps begin at the mean that has seen the fold, and what is left of it after the last one flatters the scores; hence the
small step at which to stop, and the largest gamma, beyond which EP has many fixed points
(:mod:`pymc_pacauc.ep.leave_out`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.leave_out import MANY_MODES
from pymc_pacauc.ep.loop import MixingHistory, mixed_step
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.ep.start import MOST_AT_ONCE, MeanFirst
from pymc_pacauc.numerics import FloatArray, single_threaded_blas

SMALL_STEP, MOST_STEPS = 0.03, 30  # standard deviations of q at which a step is the last; and their number
REMEMBERED = 3  # steps, mixed with the next


def suits_fold_means(fit: Fit) -> bool:
    """Whether :func:`fold_means` is for a fit: with a Gaussian prior, at a gamma that is not large."""
    if not isinstance(fit, EPFit) or fit.pairs_used > MOST_AT_ONCE:
        return False
    return fit.problem.gamma <= MANY_MODES * row_shares(fit.problem.pairs).size


def fold_means(fit: Fit, fold: NDArray[np.intp]) -> FloatArray:
    """The mean score of every observation under the posterior, at the same gamma, that has not seen its fold.

    Scores of different folds are brought to a common scale, as those of :class:`~pymc_pacauc.ep.leave_out.LeaveOut`.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> from pymc_pacauc.ep.gaussian import fit_ep
    >>> rng = np.random.default_rng(1)
    >>> X, fold = rng.normal(size=(300, 4)), np.arange(300) % 5
    >>> fit = fit_ep(linear_gaussian_problem(X, X[:, 0] + rng.normal(size=300) > 0, gamma=200.0))
    >>> exact = fit.leave_out(fold, gamma=200.0).scores
    >>> bool(np.abs(fold_means(fit, fold) - exact).max() < 0.05)
    True
    """
    assert isinstance(fit, EPFit)
    problem, space, q = fit.problem, fit.problem.scores.reduced, fit.posterior.natural
    blocks = [(block, 1.0) for block in problem.pairs.blocks] if fit.deal is None else fit.deal.parts()
    pairs = MeanFirst(space.design, space.offset, blocks, power=fit.power, scale_free=problem.scale_free)
    scores, parts = np.full(problem.n, np.nan), pairs.parts
    with single_threaded_blas():
        inverse_sd = pairs.inverse_sd(q)
        for k in np.unique(fold):
            stays = fold != k
            pairs.parts = [
                replace(p, weight_i=p.weight_i * stays[p.i], weight_j=p.weight_j * stays[p.j]) for p in parts
            ]
            gamma_per_pair = problem.gamma / pairs.total_weight
            mean, history = q.mean, MixingHistory()
            for _ in range(MOST_STEPS):
                step = q.root @ ((pairs.force(mean, inverse_sd, gamma_per_pair)[0] - mean) @ q.root)
                if problem.scale_free and mean.any():  # the length of the mean ranks nothing
                    step -= mean * (mean @ step) / (mean @ mean)
                weighed = step @ q.factor
                mixed, history = mixed_step(history, mean, step, weighed, REMEMBERED)
                mean = mean + mixed
                if np.sqrt(np.mean(weighed**2)) < SMALL_STEP:
                    break
            everyone = space.design @ mean + space.offset
            scores[~stays] = (everyone[~stays] - everyone.mean()) / (everyone.std() or 1.0)
    return scores

"""Certified AUCs with a part of the rows kept for the certificate, and of a posterior without that; on arrays.

Deal the rows of each class into a part A, from which something is learned, and the rest B, on which it is certified by
the bounds of :mod:`pymc_pacauc.core.matchings`. Three scores have a certificate then:

- *the mean score of the posterior of A*: on B it is a fixed score, and nothing is paid for having learned it;
- *a draw from the posterior of all rows*: the posterior of A is a prior fixed before B is seen, and close to the
  posterior of all rows, so that the divergence between the two costs little;
- *the mean score of the posterior of all rows*. Ranking by the mean m of a Gaussian is a majority vote, which is wrong
  about a pair only where at least half of the draws are: at most twice the risk of a draw. The factor two goes if draws
  are close to the mean and have to do better than the mean. Let rho = N(m, s^2 V), V the covariance of the posterior of
  A. If m is wrong about a pair then a draw from rho has the positive row at most kappa of its standard deviations above
  the negative one with probability at least Phi(kappa), so that the risk of m is at most 1 / Phi(kappa) times rho's
  risk at that margin. The margin of a pair is no more than that of its rows about any centre, added up.

`docs/certificates.md` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pymc_pacauc.core.matchings import deal_matchings, holdout_bound
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import empirical_risk
from pymc_pacauc.ep.matching_bound import GaussianScores, bound_of_draws, scores_under
from pymc_pacauc.ep.natural import NaturalGaussian
from pymc_pacauc.fitting import Fit, fit

__all__ = ["SplitBounds", "divergence_between", "split_bounds", "two_class_mask", "with_margin"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

SEED = 1410
TYPICAL_DIVERGENCE = 2.0  # between the posteriors of half of the rows and of all, for which the rate is chosen
SHRINK, MARGIN = 0.5, 1.0  # s and kappa


@dataclass(frozen=True, eq=False)
class SplitBounds:
    """Lower bounds on three AUCs, each at its own epsilon.

    Attributes
    ----------
    part_auc, draw_auc, mean_auc
        Of the mean score of the part's posterior; of a draw from the posterior of all rows; of its mean score.
    part, whole
        The fits.
    in_part
        Which rows the part had.
    divergence
        KL(whole, part).
    part_empirical_auc
        AUC of the part's mean score on the other rows.
    """

    part_auc: float
    draw_auc: float
    mean_auc: float
    part: Fit
    whole: Fit
    in_part: Mask
    divergence: float
    part_empirical_auc: float


def split_bounds(
    problem: Problem, *, share: float = 0.5, epsilon: float = 0.05, seed: int = SEED, n_jobs: int | None = None
) -> SplitBounds:
    """Fit a share of the rows of each class, and all of them, by EP, and certify on the rest.

    Examples
    --------
    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(400, 3))
    >>> found = split_bounds(linear_gaussian_problem(X, X[:, 0] + 0.5 * rng.normal(size=400) > 0, gamma=200.0))
    >>> found.part_auc > found.draw_auc > found.mean_auc > 0.7
    True
    """
    positive = two_class_mask(problem)
    if problem.spikes is not None:
        raise ValueError("A split certificate is for Gaussian priors; this problem has a spike-and-slab prior.")
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1; got {share!r}.")
    rng = np.random.default_rng(seed)
    in_part = _deal(positive, share, rng)
    part = fit(replace(problem, pairs=problem.pairs.among(in_part)), n_jobs=n_jobs)
    whole = fit(problem, start=part, n_jobs=n_jobs)
    rest = ~in_part
    prior, posterior = part.posterior.natural, whole.posterior.natural
    deal = deal_matchings(positive[rest])
    sizes = int(positive[rest].sum()), int((~positive[rest]).sum())
    before, after = (scores_under(problem, q, rest) for q in (prior, posterior))
    divergence = divergence_between(posterior, prior)
    scale = _best_scale(posterior.mean, prior) if problem.scale_free else 1.0
    sd = np.sqrt(part.posterior.moments_of(problem.X[rest] - problem.X[in_part].mean(axis=0), variances=True)[1])
    near = with_margin(replace(before, mean=scale * after.mean, root=SHRINK * before.root), SHRINK * sd, positive[rest])
    shift = float(np.sum((prior.factor.T @ (scale * posterior.mean - prior.mean)) ** 2)) / SHRINK**2

    def certified(scores: GaussianScores, kl: float) -> float:
        return bound_of_draws(scores, kl, deal, TYPICAL_DIVERGENCE, epsilon, rng=rng).risk

    return SplitBounds(
        part_auc=holdout_bound(deal.of(before.mean), *sizes, epsilon),
        draw_auc=1.0 - certified(after, divergence),
        mean_auc=max(0.0, 1.0 - certified(near, 0.5 * shift) / float(ndtr(MARGIN))),
        part=part,
        whole=whole,
        in_part=in_part,
        divergence=divergence,
        part_empirical_auc=1.0 - float(empirical_risk(before.mean, positive[rest])),
    )


def with_margin(scores: GaussianScores, sd: FloatArray, positive: Mask) -> GaussianScores:
    """Positive rows ``MARGIN`` times their ``sd`` lower, and negative ones higher.

    ``sd[n]`` are standard deviations of the scores' differences from the score of any one point. The risk of the means
    is then at most that of these scores over Phi(MARGIN).
    """
    return replace(scores, mean=scores.mean + MARGIN * np.where(positive, -sd, sd))


def divergence_between(q: NaturalGaussian, p: NaturalGaussian) -> float:
    """KL(q, p)."""
    spread = float(np.sum((p.factor.T @ q.root) ** 2)) - q.mean.size
    shift = float(np.sum((p.factor.T @ (q.mean - p.mean)) ** 2))
    volumes = float(np.log(np.diagonal(q.factor)).sum() - np.log(np.diagonal(p.factor)).sum())
    return max(0.0, 0.5 * (spread + shift) + volumes)


def two_class_mask(
    problem: Problem,
    what: str = "This certificate is",
    instead: str = 'Those have pac.certificate(result, bound="kl").',
) -> Mask:
    """Which rows are positive, of two classes all of whose pairs weigh the same; else ``what`` that is for, and what
    to do ``instead``.
    """
    pairs = problem.pairs
    if pairs.kind != "two classes" or len(pairs.blocks) != 1 or pairs.weighted:
        raise ValueError(
            f"{what} for two classes all of whose pairs weigh the same: without strata, weights, ordered classes or "
            f"censored times. {instead}"
        )
    if pairs.blocks[0].positive.size + pairs.blocks[0].negative.size != pairs.n:
        raise ValueError("Some rows belong to no pair: this was fitted to a part of the rows.")
    mask = np.zeros(pairs.n, dtype=bool)
    mask[pairs.blocks[0].positive] = True
    return mask


def _deal(positive: Mask, share: float, rng: np.random.Generator) -> Mask:
    chosen = np.zeros(positive.size, dtype=bool)
    for rows in (np.flatnonzero(positive), np.flatnonzero(~positive)):
        if rows.size < 2:
            raise ValueError("A split certificate needs at least two rows of each class.")
        number = int(np.clip(round(share * rows.size), 1, rows.size - 1))
        chosen[rng.permutation(rows)[:number]] = True
    return chosen


def _best_scale(mean: FloatArray, prior: NaturalGaussian) -> float:
    """The multiple of ``mean``, which ranks the same, that is closest to the prior."""
    toward = prior.precision @ mean
    length = float(mean @ toward)
    return max(float(prior.mean @ toward) / length, 1e-6) if length > 0.0 else 1.0  # zero is any multiple of itself

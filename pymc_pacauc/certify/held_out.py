"""Certificates from held-out rows: of any score (:func:`holdout`), and of a model fitted to a part (:func:`split`).

:func:`split` divides the rows of each class into a half A, which is fitted, and the rest B, on which AUCs are certified
by the bounds of :mod:`pymc_pacauc.certify.matchings` (with groups of dependent rows, by PAC-Bayes-kl). Three scores are
certified:

- *the mean score of the posterior of A*: on B it is a fixed score, so the bound has no divergence term;
- *a draw from the posterior of all rows*: the posterior of A is a prior fixed before B is seen, and near the posterior
  of all rows, so the divergence between the two is small;
- *the mean score of the posterior of all rows*. Its risk is at most twice that of a draw, because the mean m is wrong
  about a pair only if at least half of the draws are. The factor two is reduced by draws near the mean that are judged
  with a margin. Let rho = N(m, s^2 V), V the covariance of the posterior of A. If m is wrong about a pair, then with
  probability at least Phi(kappa) a draw from rho has the positive row at most kappa of its standard deviations above
  the negative one. So the risk of m is at most 1 / Phi(kappa) times the risk of rho with that margin. The margin of a
  pair is at most the sum of those of its rows about any centre (:func:`with_margin`).

Two EP fits and a thousand draws of the scores. Proofs: ``docs/theory/certificates.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from pymc_pacauc.array_result import HTMLReport
from pymc_pacauc.certify import bounds
from pymc_pacauc.certify.certificate import TUNED
from pymc_pacauc.certify.matchings import GaussianScores, bound_of_draws, holdout_bound, matching_groups, scores_under
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import bipartite, label_codes
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.deployed import deployed_score, labelled_draws
from pymc_pacauc.model.read import ModelProblem, problem_of
from pymc_pacauc.model.results import fitted_to
from pymc_pacauc.numerics import SEED, FloatArray, Mask, check_probability, check_whole
from pymc_pacauc.problem.problem import Problem, two_class_mask
from pymc_pacauc.problem.provenance import fingerprint, looks_standardized, of_comparisons, pair_fingerprint

# s and kappa, in standard deviations of the part's posterior. In simulations of 100 and 200 rows ``mean_score_auc`` is
# 0.63 on average; with s or kappa doubled 0.47 and 0.56, halved 0.61 and 0.61.
SHRINK, MARGIN = 0.5, 1.0


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """The rows that scores are certified on: a mask of the positive ones, (n,), and their groups where they have any.

    Bounds are means over matchings of rows. Rows of a group are dependent, so groups are the units of Chernoff's bound
    (for a fixed score) and of PAC-Bayes-kl (for draws).
    """

    positive: Mask
    groups: NDArray[np.intp] | None
    epsilon: float

    def of_score(self, score: FloatArray) -> float:
        """Bound the AUC of a score fixed beforehand from below."""
        if self.groups is None:
            sizes = int(self.positive.sum()), int((~self.positive).sum())
            return holdout_bound(matching_groups(self.positive).of(score), *sizes, self.epsilon)
        m = effective_size(bipartite(self.positive), self.groups)
        return 1.0 - bounds.kl_upper(float(empirical_risk(score, self.positive)), -math.log(self.epsilon) / m)

    def of_draw(self, scores: GaussianScores, divergence: float, rng: np.random.Generator) -> float:
        """Bound the AUC of a draw of ``scores``, of this ``divergence`` from a prior fixed beforehand, from below."""
        if self.groups is None:
            matched = matching_groups(self.positive)
            typical = 2.0  # nats between the posteriors of half of the rows and of all; the rate is the best for it
            return 1.0 - bound_of_draws(scores, divergence, matched, typical, self.epsilon, rng=rng).risk
        pairs = bipartite(self.positive)
        m = effective_size(pairs, self.groups)
        return 1.0 - bounds.pac_bayes_kl(scores.risk(pairs), divergence, m, self.epsilon, equal_matchings=False)


def with_margin(scores: GaussianScores, sd: FloatArray, positive: Mask) -> GaussianScores:
    """Lower the scores of positive rows by ``MARGIN`` times their ``sd``, and raise those of negative rows.

    ``sd[n]`` are standard deviations of the differences to the score of some fixed point. The risk of the mean score is
    at most that of these scores divided by Phi(MARGIN).
    """
    return replace(scores, mean=scores.mean + MARGIN * np.where(positive, -sd, sd))


def divergence_between(q: NaturalGaussian, p: NaturalGaussian) -> float:
    """Compute KL(q, p) of two Gaussians."""
    spread = float(np.sum((p.factor.T @ q.root) ** 2)) - q.mean.size
    shift = float(np.sum((p.factor.T @ (q.mean - p.mean)) ** 2))
    volumes = float(np.log(np.diagonal(q.factor)).sum() - np.log(np.diagonal(p.factor)).sum())
    return max(0.0, 0.5 * (spread + shift) + volumes)


def _best_scale(mean: FloatArray, prior: NaturalGaussian) -> float:
    """Return the factor of ``mean`` for which it is closest to the prior; a positive factor changes no ranking."""
    toward = prior.precision @ mean
    length = float(mean @ toward)
    return max(float(prior.mean @ toward) / length, 1e-6) if length > 0.0 else 1.0


@dataclass(frozen=True)
class HoldOutCertificate(HTMLReport):
    """Lower bound on the AUC of a score that was fixed before these rows were seen.

    Attributes
    ----------
    auc : float
        The certified AUC.
    empirical_auc : float
        The AUC on these rows.
    n_pos, n_neg : int
        Rows of the two classes.
    epsilon : float
        Probability with which the bound may fail.
    selected_from : int
        Number of scores that epsilon is shared between.
    groups : int
        Number of groups of rows that are the independent units; 0 where rows are.

    See Also
    --------
    holdout : Compute it.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> y = np.arange(300) < 100
    >>> certified = pac.certify.holdout(np.random.default_rng(1).normal(size=300) + 1.5 * y, y)
    >>> certified.n_pos, certified.auc < certified.empirical_auc
    (100, True)
    """

    auc: float
    empirical_auc: float
    n_pos: int
    n_neg: int
    epsilon: float
    selected_from: int
    groups: int = 0

    def __repr__(self) -> str:
        shared = f", the best of {self.selected_from} scores" if self.selected_from > 1 else ""
        return (
            f"Certified AUC >= {self.auc:.4f} with probability {1 - self.epsilon:g}{shared} "
            f"({self.empirical_auc:.4f} on {self.n_pos} + {self.n_neg} rows)\n"
            f"  - Assumes that the score was fixed before these rows were seen, and that {_independent(self.groups)}."
        )


def holdout(
    scores: Any,
    y: ArrayLike,
    epsilon: float = 0.05,
    *,
    selected_from: int = 1,
    mean: ArrayLike | None = None,
    positive: Any = None,
    groups: ArrayLike | None = None,
) -> HoldOutCertificate:
    """Certify the AUC of a fixed score of any classifier on rows that had no part in making it.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        One score per row; or what :func:`~pymc_pacauc.predict_scores` returned, of which the mean score is certified.
    y : array_like, shape (n,)
        Labels of rows that had no part in making the score.
    epsilon : float, default 0.05
        Probability, over the drawing of these rows, with which the bound may fail.
    selected_from : int, default 1
        Number of scores compared on these rows, this one among them.
    mean : array_like, shape (n,), optional
        As in :func:`~pymc_pacauc.roc`.
    positive : label, optional
        As in :func:`~pymc_pacauc.roc`.
    groups : array-like of shape (rows,), optional
        A label per row, such as its patient: groups are the independent units, and rows of one may depend on each other
        in any way. The AUC is that of all pairs, those within a group among them.

    Returns
    -------
    HoldOutCertificate
        With probability 1 - epsilon, its ``auc`` is not above the population AUC of the score.

    Raises
    ------
    ValueError
        If y does not have two classes, ``scores`` has another number of rows, or ``epsilon`` or ``selected_from`` is
        out of its range.

    See Also
    --------
    split : Fit a part of the rows and certify on the others.
    pymc_pacauc.certificate : Certify a posterior on the rows it was fitted to.

    Notes
    -----
    A bound, not an interval: it holds for every sample size and all distributions, and is the price of that below the
    lower end of :func:`~pymc_pacauc.auc_interval`.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(300) < 100
    >>> certified = pac.certify.holdout(rng.normal(size=300) + 1.5 * y, y)
    >>> 0.75 < certified.auc < certified.empirical_auc - 0.03
    True
    """
    check_probability("epsilon", epsilon)
    check_whole("selected_from", selected_from)
    draws, mask = labelled_draws(scores, y, positive)
    score = deployed_score(scores, draws, mean)
    codes = None if groups is None else label_codes("groups", groups, mask.size)
    bound = HeldOutRows(mask, codes, epsilon / selected_from).of_score(score)
    auc = 1.0 - float(empirical_risk(score, mask))
    return HoldOutCertificate(
        bound, auc, int(mask.sum()), int((~mask).sum()), epsilon, int(selected_from), _number(codes)
    )


def _number(groups: NDArray[np.intp] | None) -> int:
    """Return the number of groups; 0 where there are none."""
    return 0 if groups is None else int(groups.max()) + 1


def _independent(groups: int) -> str:
    if groups:
        return f"given the classes, the {groups} groups are independent (rows of one may depend on each other)"
    return "within each class rows are independent and identically distributed"


@dataclass(frozen=True, eq=False)
class SplitCertificate(HTMLReport):
    """Three certified AUCs, each with probability 1 - epsilon, from rows kept for the purpose.

    Attributes
    ----------
    auc : float
        Certified AUC of the mean score of ``part``, the posterior of a part of the rows: to deploy if the certificate
        matters.
    draw_auc, mean_score_auc : float
        Certified AUC of a draw from the posterior of all rows, ``whole``, and of its mean score.
    empirical_auc : float
        AUC of the part's mean score on the other rows.
    divergence : float
        KL(whole, part), in nats, the divergence in the bound of ``draw_auc``.
    part, whole : EPApproximation or Fit
        Approximations as :class:`~pymc_pacauc.EP` returns them (fits, for a problem of arrays).
    in_part : ndarray of bool, shape (n,)
        Which rows the part had.
    epsilon : float
        Probability with which each bound may fail.
    selected_from : int
        Number of certificates that epsilon is shared between.
    standardized : bool
        Whether the covariates look centred, scaled or ranked over all of these rows.
    groups : int
        Number of groups of rows that are the independent units; 0 where rows are.

    See Also
    --------
    split : Compute it.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(300, 2))
    >>> certified = pac.certify.split(pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=100.0))
    >>> certified.auc < certified.empirical_auc, int(certified.in_part.sum())
    (True, 150)
    """

    auc: float
    draw_auc: float
    mean_score_auc: float
    empirical_auc: float
    divergence: float
    part: Any
    whole: Any
    in_part: Any
    epsilon: float
    selected_from: int
    standardized: bool
    groups: int = 0

    def __repr__(self) -> str:
        caution = "\n  - CAUTION: the covariates look centred, scaled or ranked over all of these rows."
        rows, others = int(self.in_part.sum()), int((~self.in_part).sum())
        return (
            f"Certified AUC >= {self.auc:.4f} with probability {1 - self.epsilon:g}: mean score of the posterior of "
            f"{rows} rows ({self.empirical_auc:.4f} on the other {others})\n"
            f"  posterior of all rows: a draw >= {self.draw_auc:.4f}, the mean score >= {self.mean_score_auc:.4f} "
            f"(KL {self.divergence:.2f} nats from the part's)\n"
            "  - Each bound holds on its own; for the best of the three pass selected_from=3 beforehand.\n"
            f"  - Assumes that {_independent(self.groups)}, and that nothing besides (gamma, prior, scaling of "
            "covariates) was chosen with the rows outside the part."
            f"{caution if self.standardized else ''}"
        )


@raises_interrupts
def split(
    model: pm.Model | Problem | None = None,
    epsilon: float = 0.05,
    *,
    selected_from: int = 1,
    groups: ArrayLike | None = None,
    random_seed: int = SEED,
    n_jobs: int | None = None,
) -> SplitCertificate:
    """Certify the AUC of a fit to half of the rows, and of a fit to all of them, on the other half.

    Parameters
    ----------
    model : pymc.Model or Problem, optional
        A model with scores affine in Gaussian variables and two classes, by default the one on the context stack; or a
        :class:`~pymc_pacauc.problem.problem.Problem` of arrays. Its gamma is used for both fits, by EP.
    epsilon : float, default 0.05
        Probability, over the drawing of the rows, with which each bound may fail.
    selected_from : int, default 1
        Number of certificates compared, this one among them: models, gammas, or the three bounds of one.
    groups : array_like, shape (n,), optional
        A label per row, such as its patient: groups are the independent units, and none is split.
    random_seed : int, Generator or None, default 1410
        Seed of the choice of the part: fixed before looking.
    n_jobs : int, optional
        Threads, by default one per core.

    Returns
    -------
    SplitCertificate
        Certified AUCs of the mean score of the part, of a draw and of the mean score of the fit to all rows.

    Raises
    ------
    ValueError
        If the model has other than two classes or scores EP cannot fit, or an option is out of its range.

    Warns
    -----
    ConvergenceWarning
        If one of the two fits does not converge.

    See Also
    --------
    holdout : Certify any score on rows that had no part in making it.
    pymc_pacauc.certificate : Certify a posterior on the rows it was fitted to.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(400, 3))
    >>> y = X[:, 0] + rng.normal(size=400) > 0
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=3)
    ...     auc = pac.AUCPotential("auc", X @ theta, y, gamma=200)
    >>> certified = pac.certify.split(model)
    >>> 0.65 < certified.auc < certified.empirical_auc
    True
    """
    check_probability("epsilon", epsilon)
    check_whole("selected_from", selected_from)
    source: ModelProblem | None = None
    if isinstance(model, Problem):
        problem, tuned = model, model.tuned_prior
    else:
        source = problem_of(pm.modelcontext(model))
        problem, tuned = source.problem, fitted_to(source.model, "EP").tuned_prior
    if tuned:
        raise ValueError(TUNED)
    positive = two_class_mask(problem)
    if problem.sites is not None:
        raise ValueError(f"model must have a Gaussian prior, to be certified; it is {problem.sites.name}.")
    rng = np.random.default_rng(random_seed)
    codes = None if groups is None else label_codes("groups", groups, positive.size)
    try:
        in_part = comparison_folds(problem.pairs, 2, rng, codes) == 0
    except ValueError:
        sizes = f"{positive.sum()} positive and {(~positive).sum()} negative rows"
        sizes += "" if codes is None else f" in {_number(codes)} groups"
        raise ValueError(f"model cannot be split into halves with rows of both classes: it has {sizes}.") from None
    part = fit(replace(problem, pairs=problem.pairs.among(in_part)), n_jobs=n_jobs)
    whole = fit(problem, n_jobs=n_jobs)
    rest = ~in_part
    prior, posterior = part.posterior.natural, whole.posterior.natural
    before, after = (scores_under(problem, q, rest) for q in (prior, posterior))
    divergence = divergence_between(posterior, prior)
    scale = _best_scale(posterior.mean, prior) if problem.scale_free else 1.0
    sd = np.sqrt(part.posterior.moments_of(problem.X[rest] - problem.X[in_part].mean(axis=0), variances=True)[1])
    near = with_margin(replace(before, mean=scale * after.mean, root=SHRINK * before.root), SHRINK * sd, positive[rest])
    shift = float(np.sum((prior.factor.T @ (scale * posterior.mean - prior.mean)) ** 2)) / SHRINK**2
    held_out = HeldOutRows(positive[rest], None if codes is None else codes[rest], epsilon / selected_from)
    found = SplitCertificate(
        auc=held_out.of_score(before.mean),
        draw_auc=held_out.of_draw(after, divergence, rng),
        mean_score_auc=max(0.0, 1.0 - (1.0 - held_out.of_draw(near, 0.5 * shift, rng)) / float(ndtr(MARGIN))),
        empirical_auc=1.0 - float(empirical_risk(before.mean, positive[rest])),
        divergence=divergence,
        part=part,
        whole=whole,
        in_part=in_part,
        epsilon=epsilon,
        selected_from=int(selected_from),
        standardized=looks_standardized(problem.X),
        groups=_number(codes),
    )
    if source is None:
        return found
    of_part, of_whole = (EPApproximation(each, source) for each in (part, whole))
    pairs = part.problem.pairs  # of fewer rows than the model has
    own = of_comparisons([pairs.on_rows(np.flatnonzero(in_part))]) | {"pairs": pair_fingerprint([pairs])}
    of_part.fitted_to = replace(of_part.fitted_to, data=fingerprint([in_part, np.array(of_part.fitted_to.data)]), **own)
    return replace(found, part=of_part, whole=of_whole)

"""Base class of all fits, whatever their prior and method, and the warnings that they share.

Certificates, predictions and cross-validation use :class:`Fit` only, so an engine that returns an object with its
attributes works with all of them.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.ep.importance import WeightedDraws
from pymc_pacauc.ep.leave_out import Groups, LeaveOut
from pymc_pacauc.ep.loop import ROUNDING, ConvergenceWarning, Interventions, Solution
from pymc_pacauc.ep.plan import Plan
from pymc_pacauc.problem.problem import Problem

# Advice of warnings about convergence in terms of the options of the public caller; empty: the advice of fit itself
ADVICE: ContextVar[str] = ContextVar("advice", default="")


@dataclass(frozen=True)
class SamplingError:
    """Standard errors from using a subset of the pairs; zero where all were used.

    Attributes
    ----------
    log_evidence : float, default 0
        Standard error of log Z, in nats.
    mean : float, default 0
        Standard error of the posterior mean, in posterior standard deviations of the same direction; root mean square
        over directions.
    """

    log_evidence: float = 0.0
    mean: float = 0.0


EXACT = SamplingError()
# Standard errors that are warned of. Of the mean, in posterior standard deviations: up to here intervals have their
# nominal coverage (benchmarks/subsample_coverage.py); doubled, fewer fits use more pairs, and coverage is lower.
TRUSTED_ERROR = 0.3
LARGE_EVIDENCE_ERROR = 3.0  # of log Z, nats: a factor of twenty between models; twice as much warns less often


def warn_of_subsample(error: SamplingError, used: int, n_pairs: int, said: str, advice: str, stacklevel: int) -> None:
    """Warn of ``said``, if it is not empty, and of a large error from using ``used`` of ``n_pairs`` pairs.

    ``advice`` is in terms of the options of :func:`~pymc_pacauc.fitting.fit`; ``ADVICE`` replaces it where it is set.
    """
    messages = [said] if said else []
    if not (error.mean <= TRUSTED_ERROR and error.log_evidence <= LARGE_EVIDENCE_ERROR):
        messages.append(
            f"The subsample of {used} of {n_pairs} pairs leaves an error of {error.mean:.2g} posterior standard "
            f"deviations in the mean, and of {error.log_evidence:.2g} nats in log Z: do not compare models by it. "
            f"{ADVICE.get() or advice}"
        )
    if messages:
        warnings.warn(" ".join(messages), ConvergenceWarning, stacklevel=stacklevel)


def warn_of(
    method: str,
    found: Solution[Any, Any],
    sweeps: int,
    tolerance: float,
    log_evidence: float,
    advice: str,
    stacklevel: int,
) -> None:
    """Warn of a solution that is not converged or interrupted, or whose log evidence is positive.

    ``advice`` is in terms of the options of :func:`~pymc_pacauc.fitting.fit`; ``ADVICE`` replaces it where it is set.
    """
    messages = []
    if found.interrupted:
        messages.append(f"The fit was interrupted after {sweeps} sweeps, and is returned as it was then")
    elif not found.converged:
        messages.append(f"{method} did not converge in {sweeps} sweeps")
    if messages:
        messages[0] += f" (last change {found.seen.change:.2g}, tolerance {tolerance:g})."
    if found.seen.log_evidence > ROUNDING:
        messages.append(
            f"Its log evidence would be {found.seen.log_evidence:+.3g}, which is impossible (a risk is at least 0): "
            "it is set to NaN."
        )
    elif np.isnan(log_evidence) and messages:
        messages.append("Without convergence the log evidence is not defined: it is set to NaN.")
    if messages:
        warnings.warn(" ".join([*messages, ADVICE.get() or advice]), ConvergenceWarning, stacklevel=stacklevel)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Fit(ABC):
    """Gaussian approximation of the posterior of a problem of arrays; :func:`pymc_pacauc.arrays.fit` returns one.

    Attributes
    ----------
    problem : Problem
        Problem that was fitted.
    method : str
        ``"EP"`` or ``"GaussianVB"``.
    posterior : GaussianPosterior or SitesPosterior
        The approximation q of the posterior of theta. It has ``mean``, shape (d,), ``covariance``, shape (d, d),
        ``variance``, its diagonal, ``score_mean``, shape (d,), the coefficients of the mean score, which is deployed
        and certified, ``moments_of(theta_map)``, mean and covariance (or ``variances=True``) of ``theta_map @ theta``,
        and ``draw(draws, rng)``, independent draws, shape (draws, d); where a Dirac spike holds a coefficient, it is
        exactly zero.
    corrected : like ``posterior``
        The same with the exact distribution of theta's length where it is known, else ``posterior``.
    log_evidence, log_evidence_error : float
        Log evidence in nats, for variational Bayes the lower bound, NaN far from a fixed point; and its standard error,
        NaN where the method gives none.
    expected_risk : float
        E_q[risk] of the q returned, in closed form.
    converged, interrupted : bool
        Whether q is a fixed point to the tolerance; whether the fit was ended from the keyboard.
    sweeps : int
        Number of sweeps over all pairs.
    history : tuple of dict
        Records of the sweeps: change, log evidence and expected risk after each.
    interventions : Interventions
        How often each safeguard acted.
    plan : Plan
        How it was fitted, in a sentence: coordinates, pairs, start, sweeps.
    tied_pairs, pairs_used : int
        Pairs whose scores are equal whatever theta; pairs that were used: all, or those sampled.
    sampling_error : SamplingError
        Error from using a subset of pairs: of the log evidence, and of the mean in posterior standard deviations.
    divergence : float
        KL(q, prior); NaN where it has no closed form.
    inclusion_probability : ndarray, shape (d,)
        Probability of the slab for each coefficient; one where the prior is Gaussian.
    model_average : ModelAverage or None
        Exact inclusion probabilities and evidence by importance sampling, or None.

    See Also
    --------
    pymc_pacauc.arrays.fit : Compute it.
    pymc_pacauc.results.EPApproximation : The same for a PyMC model.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
    >>> fit.method, fit.converged, fit.posterior.mean.shape
    ('EP', True, (1,))
    """

    problem: Problem
    posterior: Any
    log_evidence: float
    expected_risk: float
    converged: bool
    history: tuple[dict[str, float], ...]
    interventions: Interventions
    tied_pairs: int
    plan: Plan
    interrupted: bool = False
    sampling_error: SamplingError = EXACT
    # Of the class, or computed when asked for
    method: ClassVar[Any]
    corrected: ClassVar[Any]
    log_evidence_error: ClassVar[Any]
    divergence: ClassVar[Any]
    inclusion_probability: ClassVar[Any]
    model_average: ClassVar[Any]

    @property
    def sweeps(self) -> int:
        """Number of sweeps over all pairs."""
        return len(self.history)

    @property
    def pairs_used(self) -> int:
        """Number of pairs that were used: all, or those sampled."""
        return self.problem.pairs.n_pairs

    @property
    def expected_model_size(self) -> float:
        """Expected number of coefficients from the slab."""
        return float(self.inclusion_probability.sum())

    def __repr__(self) -> str:
        problem, state = self.problem, "converged" if self.converged else "NOT converged"
        sampled = f"{self.pairs_used} pairs, " if self.pairs_used < problem.pairs.n_pairs else ""
        size = "" if problem.spikes is None else f"expected_model_size={self.expected_model_size:.2f}, "
        return (
            f"{type(self).__name__}(d={problem.d}, gamma={problem.gamma:g}, {sampled}{size}log_evidence="
            f"{self.log_evidence:.3f}, expected_risk={self.expected_risk:.4f}, {state} in {self.sweeps} sweeps)"
        )

    @abstractmethod
    def leave_out(
        self,
        groups: ArrayLike | Groups | None = None,
        *,
        gamma: float | None = None,
        refine: int | None = None,
        tolerance: float = 1e-6,
        of_draws: bool = True,
        n_jobs: int | None = None,
        callback: Callable[[int, int], None] | None = None,
    ) -> LeaveOut:
        """Compute scores of every observation under the posterior that has not seen its group.

        Parameters
        ----------
        groups : array_like, shape (n,), optional
            Group of each observation, left out together; by default each is left out alone.
        gamma : float, optional
            Inverse temperature of the posteriors without a group; by default that of the fit.
        refine : int, optional
            Iterations over the remaining pairs after the removal; by default 3 for groups and 10 for single
            observations; given ``gamma``, until they converge.
        tolerance : float, default 1e-6
            Change at which these iterations stop.
        of_draws : bool, default True
            Whether to compute ``group_expected_auc`` too.
        n_jobs : int, optional
            Threads, by default one per core.
        callback : callable, optional
            Called with the numbers of groups done and of all groups.

        Returns
        -------
        LeaveOut
            Scores, shape (n,), with their variances and the cross-validated AUC.

        Raises
        ------
        ValueError
            If ``groups`` has the wrong shape or one value only, or a group holds a whole class.

        Warns
        -----
        ConvergenceWarning
            If iterations at a given ``gamma`` do not converge for some groups.

        See Also
        --------
        pymc_pacauc.leave_out : The same for any result.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=60.0))
        >>> fit.leave_out(np.arange(60) % 3).scores.shape
        (60,)
        """

    @abstractmethod
    def evidence_gradient(self) -> Any:
        """Differentiate ``log_evidence`` with respect to the prior.

        Returns
        -------
        EvidenceGradient or SpikeSlabGradient
            For a Gaussian prior, ``mean``, shape (d,), and ``covariance``, shape (d, d); for a spike-and-slab prior
            ``inclusion_probability``, ``v0`` and ``v1``, shape (d,).

        Raises
        ------
        UnsupportedError
            For other priors.

        See Also
        --------
        pymc_pacauc.maximize_evidence : Uses the derivatives.

        Examples
        --------
        >>> import pymc_pacauc as pac
        >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
        >>> gradient = fit.evidence_gradient()
        >>> gradient.mean.shape, gradient.covariance.shape
        ((1,), (1, 1))
        """

    @abstractmethod
    def importance(self, draws: int, rng: np.random.Generator) -> WeightedDraws:
        """Draw theta and weight the draws by exact posterior / approximation.

        Parameters
        ----------
        draws : int
            Number of draws.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        WeightedDraws
            ``theta``, shape (draws, d), ``risk`` and ``log_weights``, shape (draws,); the mean weight estimates the
            evidence.

        Raises
        ------
        UnsupportedError
            For priors that are not Gaussian: with an offset, or with too many coefficients.

        See Also
        --------
        pymc_pacauc.results.EPApproximation.importance_sample : The same for a PyMC model, with smoothed weights.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
        >>> fit.importance(100, np.random.default_rng(1)).theta.shape
        (100, 1)
        """

"""What every fit has, whatever its prior and method: the protocol that certificates, predictions and folds rely on."""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.ep.importance import WeightedDraws
from pymc_pacauc.ep.leave_out import Groups, LeaveOut
from pymc_pacauc.ep.loop import ROUNDING, ConvergenceWarning, Interventions, Solution
from pymc_pacauc.ep.plan import Plan
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem

# What to do about a fit that did not converge, by options of whoever called it; empty: those of fit
ADVICE: ContextVar[str] = ContextVar("advice", default="")


@dataclass(frozen=True)
class SamplingError:
    """What using some of the pairs only does to a fit: standard errors, zero where all were used.

    Attributes
    ----------
    log_evidence
        Of log Z, in nats.
    mean
        Of the posterior mean, in standard deviations of the posterior in the same direction, root mean square over
        directions.
    """

    log_evidence: float = 0.0
    mean: float = 0.0


EXACT = SamplingError()
# Standard errors that are warned of. Of the mean, posterior standard deviations: up to here claims cover, see
# benchmarks/subsample_coverage.py; twice as much spares a few fits the use of more pairs, and covers less often.
TRUSTED_ERROR = 0.3
LARGE_EVIDENCE_ERROR = 3.0  # of log Z, nats: a factor of twenty between models; twice as much warns less often


def warn_of_subsample(error: SamplingError, used: int, n_pairs: int, said: str, advice: str, stacklevel: int) -> None:
    """Warn, after what is to be ``said`` anyhow, where ``used`` of ``n_pairs`` pairs leave a large error.

    ``advice`` is for callers of :func:`~pymc_pacauc.fitting.fit`; ``ADVICE``, where it is set, for others.
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
    """Warn of what is wrong with a solution, if anything: not converged, interrupted, an impossible evidence.

    ``advice`` is for callers of :func:`~pymc_pacauc.fitting.fit`; ``ADVICE``, where it is set, for others.
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
            f"Its log evidence came out as {found.seen.log_evidence:+.3g}, which is impossible (a risk is at least 0): "
            "it is NaN."
        )
    elif np.isnan(log_evidence) and messages:
        messages.append("Away from a fixed point the log evidence means nothing: it is NaN.")
    if messages:
        warnings.warn(" ".join([*messages, ADVICE.get() or advice]), ConvergenceWarning, stacklevel=stacklevel)


class Posterior(Protocol):
    """The approximate posterior of theta."""

    @property
    def mean(self) -> FloatArray:
        """Shape (d,)."""

    @property
    def covariance(self) -> FloatArray:
        """Shape (d, d)."""

    @property
    def variance(self) -> FloatArray:
        """The diagonal of ``covariance``, shape (d,)."""

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance (or ``variances``) of ``theta_map @ theta``."""

    @property
    def score_mean(self) -> FloatArray:
        """Coefficients (d,) of the mean score, the one that is deployed and certified: along the mean of ``q``."""

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d); where a Dirac spike holds a coefficient, it is exactly zero."""


class Fit(Protocol):
    """Result of :func:`pymc_pacauc.fitting.fit`."""

    @property
    def problem(self) -> Problem:
        """What was fitted."""

    @property
    def method(self) -> str:
        """``"EP"`` or ``"GaussianVB"``."""

    @property
    def posterior(self) -> Any:
        """The approximation q, a :class:`Posterior`."""

    @property
    def corrected(self) -> Any:
        """A :class:`Posterior` with the exact length of theta, where that has a law of its own; else ``posterior``."""

    @property
    def log_evidence(self) -> float:
        """log Z; for variational Bayes the lower bound. NaN where q is not close enough to a fixed point to tell."""

    @property
    def log_evidence_error(self) -> float:
        """Standard error of ``log_evidence``; NaN where the method gives none."""

    @property
    def expected_risk(self) -> float:
        """E_q[risk] of the q returned, in closed form."""

    @property
    def converged(self) -> bool:
        """Whether q is a fixed point to the tolerance asked for."""

    @property
    def interrupted(self) -> bool:
        """Whether the fit was ended from the keyboard."""

    @property
    def sweeps(self) -> int:
        """Sweeps over all pairs."""

    @property
    def history(self) -> tuple[dict[str, float], ...]:
        """What each sweep found."""

    @property
    def interventions(self) -> Interventions:
        """How often each safeguard acted."""

    @property
    def plan(self) -> Plan:
        """How it was fitted, in a sentence: coordinates, pairs, start, sweeps."""

    @property
    def tied_pairs(self) -> int:
        """Pairs whose scores are equal whatever theta."""

    @property
    def pairs_used(self) -> int:
        """How many pairs were looked at: all, or those sampled."""

    @property
    def sampling_error(self) -> SamplingError:
        """What it does to the result that these were not all."""

    @property
    def divergence(self) -> float:
        """KL(q, prior); NaN where it has no closed form."""

    @property
    def inclusion_probability(self) -> FloatArray:
        """Probability of the slab for each coefficient, shape (d,); one where the prior is Gaussian."""

    @property
    def model_average(self) -> Any:
        """Exact inclusion probabilities and evidence by importance sampling, or None."""

    def leave_out(
        self, groups: ArrayLike | Groups | None = None, *, n_jobs: int | None = None, **options: Any
    ) -> LeaveOut:
        """Scores of every observation under the posterior that has not seen its group."""

    def evidence_gradient(self) -> Any:
        """Derivatives of ``log_evidence`` with respect to the prior."""

    def importance(self, draws: int, rng: np.random.Generator) -> WeightedDraws:
        """Draws weighted by exact posterior / approximation."""

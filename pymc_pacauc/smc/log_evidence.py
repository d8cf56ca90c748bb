"""Standard error of the log evidence of tempering SMC, and pooling of independent runs.

The estimate of one run is a product of mean weights, one per stage. The relative variance of a stage's factor is
estimated from its own particles, grouped by the particle each was resampled from: particles of one parent may still
resemble each other, different parents are independent, so

    v_t = sum over parents (sum over its particles (W_i - 1/N))^2,      Var(log Z) ~ sum over stages v_t.

With every particle its own parent this is ``1/ESS - 1/N``. It is the genealogical estimator of Lee and Whiteley
(2018) traced back by one generation (Olsson and Douc, 2019), adequate when the moves of a stage decorrelate the
particles, which the engine checks. All states of a particle count with its parent, as Dau and Chopin (2022) have it.

Use: ``combine(log_evidences, variances)`` pools independent runs, each given by its last stage's ``log_evidence`` and
``log_evidence_variance``, and says whether they agree.

References: Lee and Whiteley (2018), doi:10.1093/biomet/asy028; Olsson and Douc (2019), doi:10.3150/17-BEJ985; Dau and
Chopin (2022), doi:10.1111/rssb.12475.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pymc_pacauc.numerics import FloatArray


def stage_variance(weights: FloatArray, parent: NDArray[np.intp]) -> float:
    """Compute v_t from the normalised weights and the parents of the particles, (N,) each.

    The excesses of G parents sum to zero, so the sum of their squares is divided by 1 - 1/G.
    """
    excess = np.bincount(parent, weights - 1.0 / weights.size)
    groups = np.unique(parent).size
    return float(excess @ excess) * (groups / (groups - 1) if groups > 1 else 1.0)


@dataclass(frozen=True)
class LogEvidence:
    """Estimate of the log evidence (log marginal likelihood, in nats) with its standard error.

    Attributes
    ----------
    estimate : float
        Log of the average of the runs' (unbiased) evidences.
    standard_error : float
        Standard error of ``estimate``: from the single-run variances, or from the spread of the runs where that is
        larger; NaN where it is not known.
    within : float
        Standard deviation of one run's log evidence, estimated within runs.
    between : float
        The same estimated from the spread of the runs; NaN for one run.
    agree : bool
        False when the runs differ by more than their own variances allow.

    See Also
    --------
    pymc_pacauc.log_evidence : Compute it from draws.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
    >>> found = pac.log_evidence(fit)
    >>> round(found.estimate, 2), found.standard_error < 0.01
    (-0.57, True)
    """

    estimate: float
    standard_error: float
    within: float
    between: float
    agree: bool

    def __str__(self) -> str:
        return f"{self.estimate:.3f} +- {self.standard_error:.3f}"


def combine(log_evidences: ArrayLike, variances: ArrayLike) -> LogEvidence:
    """Pool independent runs.

    Runs disagree if their spread exceeds their variances at the 0.1 % level (chi-square), and 0.5 nats.
    """
    values, own = np.atleast_1d(np.asarray(log_evidences, float)), np.atleast_1d(np.asarray(variances, float))
    runs = values.size
    top = values.max()
    estimate = float(top + np.log(np.mean(np.exp(values - top))))
    within = float(np.sqrt(own.mean()))
    if runs == 1:
        return LogEvidence(estimate, within, within, float("nan"), True)
    between = float(values.std(ddof=1))
    excess = (runs - 1) * between**2 / max(within**2, 1e-300)
    agree = bool(np.ptp(values) <= 0.5 or excess <= special.chdtri(runs - 1, 0.001))
    spread = within if agree else max(within, between)
    return LogEvidence(estimate, spread / float(np.sqrt(runs)), within, between, agree)

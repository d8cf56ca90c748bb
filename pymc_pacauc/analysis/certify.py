"""Certified AUC of a fitted model: a lower bound on the AUC of future pairs, with the conditions it holds under."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_pacauc.analysis.annotate import group, tempering_attributes
from pymc_pacauc.core.bounds import catoni_bound, catoni_rate, linear_bound, linear_rate, pac_bayes_kl
from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.model.approximation import EPApproximation

__all__ = ["Certificate", "certificate"]

BOUNDS = {"linear": (linear_bound, linear_rate), "catoni": (catoni_bound, catoni_rate)}
STANDARD_ERRORS = 3.0  # a certificate from Monte Carlo output is computed this many standard errors on the safe side


@dataclass(frozen=True)
class Certificate:
    """A lower bound on an AUC, and what it rests on.

    Attributes
    ----------
    auc
        Certified AUC of the *randomised* score: draw theta from the posterior, rank by its score. Expected over theta.
    mean_score_auc
        Certified AUC of ranking by the posterior mean (NaN where that is no majority vote). Twice the risk: often
        vacuous where ``auc`` is not, though the mean score is usually the better one.
    empirical_auc
        AUC of the randomised score on the training pairs.
    divergence
        KL(posterior, prior).
    n_pos, n_neg
        Class sizes; the bound counts the smaller one.
    epsilon, selected_from
        Probability with which the bound may fail, and between how many priors it is shared.
    bound
        Its name, and its rate where it has one.
    method, gamma
        Where the posterior came from.
    monte_carlo
        Standard errors of (mean risk, log evidence) where these were estimated by sampling, else None. The bound is
        computed three of them on the safe side.
    assumptions
        In words.
    """

    auc: float
    mean_score_auc: float
    empirical_auc: float
    divergence: float
    n_pos: int
    n_neg: int
    epsilon: float
    selected_from: int
    bound: str
    method: str
    gamma: float
    monte_carlo: tuple[float, float] | None
    assumptions: tuple[str, ...]

    @property
    def m(self) -> int:
        """Independent pairs the bound counts: the size of the smaller class."""
        return min(self.n_pos, self.n_neg)

    def __repr__(self) -> str:
        vacuous = " (vacuous)" if self.mean_score_auc <= 0.5 else ""
        mean = "not available" if math.isnan(self.mean_score_auc) else f">= {self.mean_score_auc:.4f}{vacuous}"
        return "\n".join(
            [
                f"Certified AUC >= {self.auc:.4f} with probability {1 - self.epsilon:g} ({self.bound}, {self.method})",
                f"  mean score     {mean}",
                f"  empirical AUC  {self.empirical_auc:.4f} (randomised score, gamma = {self.gamma:g})",
                f"  KL             {self.divergence:.3f} nats from the prior",
                f"  m              {self.m} (n+ = {self.n_pos}, n- = {self.n_neg})",
                *(f"  - {sentence}" for sentence in self.assumptions),
            ]
        )


@dataclass(frozen=True)
class _Evidence:
    """What a bound needs of a posterior."""

    risk: float
    divergence: float
    n_pos: int
    n_neg: int
    d: int
    gamma: float
    method: str
    gaussian: bool
    monte_carlo: tuple[float, float] | None = None
    standardized: bool | None = None


def certificate(
    result: Any,
    epsilon: float = 0.05,
    *,
    selected_from: int = 1,
    bound: str = "kl",
    rate: float | None = None,
    model: pm.Model | None = None,
) -> Certificate:
    """Certify the AUC of a posterior: a lower bound that holds whatever the distribution of the data.

    Parameters
    ----------
    result
        An approximation returned by ``pm.fit(method=pac.EP())`` or ``pac.GaussianVB()`` (risk and divergence in closed
        form), draws of one, or what ``pm.sample(step=pac.TemperingSMC())`` returned (divergence = -gamma E[risk] - log
        Z, estimated, hence on the safe side by three standard errors).
    epsilon
        Probability, over the drawing of the data, with which the bound may fail.
    selected_from
        Number of priors (hyper-parameters, transformations of X) compared on the same data, this one among them.
        Choosing *gamma* alone is free: the bounds hold for all posteriors at once.
    bound
        ``"kl"`` (PAC-Bayes-kl), or ``"catoni"`` or ``"linear"``, which depend on a rate; see
        :mod:`pymc_pacauc.core.bounds`. ``"catoni"`` is often the tightest for a few hundred observations.
        Choose before looking: the better of two bounds needs ``selected_from=2``.
    rate
        Rate of the linear or Catoni's bound, fixed in advance; by default about the best one if the divergence were d
        (and, for Catoni's, the AUC 0.85).
    model
        The model of an idata from ``pm.sample``; by default the one on the context stack.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X[:, 0] + rng.normal(size=1000) > 0
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=3)
    ...     auc = pac.AUCPotential("auc", X @ theta, y, gamma=100)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> certified = pac.certificate(approx)
    >>> 0.7 < certified.auc < certified.empirical_auc
    True
    """
    if bound not in ("kl", *BOUNDS):
        raise ValueError(f'bound must be "kl", "catoni" or "linear"; got {bound!r}.')
    known = _evidence(result, model)
    m = min(known.n_pos, known.n_neg)
    risk, divergence = known.risk, known.divergence
    if known.monte_carlo is not None:
        risk_error, evidence_error = (STANDARD_ERRORS * error for error in known.monte_carlo)
        risk = min(1.0, risk + risk_error)
        divergence += known.gamma * risk_error + evidence_error
    if bound == "kl":
        highest = pac_bayes_kl(risk, divergence, m, epsilon, selected_from=selected_from)
    else:
        evaluate, default_rate = BOUNDS[bound]
        rate = default_rate(m, known.d, epsilon) if rate is None else rate
        highest = evaluate(risk, divergence, m, epsilon, rate=rate, selected_from=selected_from)
    return Certificate(
        auc=1.0 - highest,
        mean_score_auc=max(0.0, 1.0 - 2.0 * highest) if known.gaussian else math.nan,
        empirical_auc=1.0 - known.risk,
        divergence=divergence,
        n_pos=known.n_pos,
        n_neg=known.n_neg,
        epsilon=epsilon,
        selected_from=selected_from,
        bound="PAC-Bayes-kl" if bound == "kl" else f"{bound.capitalize()}, rate {rate:.4g}",
        method=known.method,
        gamma=known.gamma,
        monte_carlo=known.monte_carlo,
        assumptions=_assumptions(known, selected_from),
    )


def _evidence(result: Any, model: pm.Model | None) -> _Evidence:
    if isinstance(result, EPApproximation):
        if not isinstance(result.fit, EPFit):
            raise TypeError(
                "The divergence of this approximation from its prior has no closed form: certify the exact posterior, "
                "sampled by pm.sample(step=pac.TemperingSMC())."
            )
        return _of_fit(result.fit, result.method)
    if isinstance(result, EPFit):
        return _of_fit(result, "VB" if result.power == 0 else "EP")
    attrs = getattr(group(result, "posterior"), "attrs", {})
    if "pacauc_divergence" in attrs:
        return _Evidence(
            risk=float(attrs["pacauc_expected_risk"]),
            divergence=float(attrs["pacauc_divergence"]),
            n_pos=int(attrs["pacauc_n_pos"]),
            n_neg=int(attrs["pacauc_n_neg"]),
            d=int(attrs["pacauc_d"]),
            gamma=float(attrs["pacauc_gamma"]),
            method=str(attrs["pacauc_method"]),
            gaussian=True,
        )
    return _of_tempering(result, model)


def _of_fit(fit: EPFit, method: str) -> _Evidence:
    problem = fit.problem
    n_pos, n_neg = class_sizes(problem.pairs)
    spread = problem.X.std(axis=0)
    centred = np.abs(problem.X.mean(axis=0)) < 1e-8 * (1.0 + spread)
    return _Evidence(
        risk=expected_risk(fit),
        divergence=fit.posterior.divergence_from_prior,
        n_pos=n_pos,
        n_neg=n_neg,
        d=problem.d,
        gamma=problem.gamma,
        method=method,
        gaussian=True,
        standardized=bool(problem.d > 1 and np.mean(centred & (np.abs(spread - 1.0) < 1e-2)) > 0.5),
    )


def expected_risk(fit: EPFit) -> float:
    """E_q[risk] of the q that was returned, a tie costing one half."""
    return fit.expected_risk + (
        0.5 * fit.tied_pairs / fit.problem.pairs.n_pairs if fit.problem.ties == "strict" else 0.0
    )


def class_sizes(pairs: Pairs) -> tuple[int, int]:
    """n+ and n- of two classes."""
    if len(pairs.blocks) != 1:
        raise ValueError(
            f"Certificates are for two classes compared pair by pair; these pairs come in {len(pairs.blocks)} blocks."
        )
    return pairs.blocks[0].positive.size, pairs.blocks[0].negative.size


def _of_tempering(idata: Any, model: pm.Model | None) -> _Evidence:
    said = tempering_attributes(idata, model)
    if not said["pacauc_only_auc"]:
        raise ValueError(
            "The model has a likelihood or a potential besides the AUC term: log Z is then not that of the Gibbs "
            "posterior."
        )
    if said["pacauc_ties"] != "half":
        raise ValueError('A certified AUC needs ties="half": a free tie is not an AUC.')
    gamma, risk = float(said["pacauc_gamma"]), float(said["pacauc_expected_risk"])
    return _Evidence(
        risk=risk,
        divergence=max(0.0, -gamma * risk - float(said["pacauc_log_evidence"])),
        n_pos=int(said["pacauc_n_pos"]),
        n_neg=int(said["pacauc_n_neg"]),
        d=int(said["pacauc_d"]),
        gamma=gamma,
        method=str(said["pacauc_method"]),
        gaussian=False,
        monte_carlo=(float(said["pacauc_expected_risk_se"]), float(said["pacauc_log_evidence_se"])),
    )


def _assumptions(known: _Evidence, selected_from: int) -> tuple[str, ...]:
    said = [
        "Assumes that within each class observations are independent and identically distributed.",
        "Assumes that the prior was fixed before these data were seen: no hyper-parameter tuned on them, by evidence "
        "or otherwise, beyond the choice counted next."
        if selected_from > 1
        else "Assumes that the prior was fixed before these data were seen: no hyper-parameter tuned on them. Choosing "
        "gamma costs nothing; for the best of G priors say selected_from=G.",
    ]
    if selected_from > 1:
        said.append(f"Pays for a choice among {selected_from} priors or settings: epsilon / {selected_from} each.")
    if known.standardized:
        said.append(
            "CAUTION: the covariates have mean 0 and variance 1 over this very sample. Standardised with it, the prior "
            "on scores depends on the data and the bound is not exact; standardise with reference values or other rows."
        )
    else:
        said.append("Assumes that covariates were not standardised with these rows.")
    if known.monte_carlo is not None:
        risk, evidence = known.monte_carlo
        said.append(
            f"Risk and log evidence are estimates (s.e. {risk:.1e} and {evidence:.2f}); the bound is computed "
            f"{STANDARD_ERRORS:g} s.e. on the safe side, which is not a proof."
        )
    return tuple(said)

"""Hyper-parameters the paper's theorems suggest, in this package's units.

The theory of the paper (sections 2.1 to 2.4) averages the risk over all n(n-1) ordered pairs of observations, its
practice (section 3.3 on) over the n+ n- pairs of one positive and one negative observation, and both call the inverse
temperature gamma. Here gamma always multiplies the pair risk. A wrong pair counts 2 / (n(n-1)) in the first average
and 1 / (n+ n-) in the second, so the posterior is the same when

    gamma_pair = gamma_U * 2 n+ n- / (n(n-1)).

The theorems contain unknown constants (C here, c and the best risk in their bounds). They give the order of magnitude
of the hyper-parameters; for a bound that can be computed see ``pac.certificate``.

>>> from pymc_pacauc import theorems
>>> theorems.theorem_defaults(n_pos=68, n_neg=132, d=7).gamma
11.22
"""

from __future__ import annotations

import math
import operator
import sys
from dataclasses import dataclass

__all__ = ["TheoremDefaults", "default_gamma", "pair_gamma", "theorem_defaults", "u_statistic_gamma"]


@dataclass(frozen=True)
class TheoremDefaults:
    """Hyper-parameters that Theorems 2.3 to 2.5 suggest, as :func:`theorem_defaults` returns them.

    Attributes
    ----------
    gamma : float
        Inverse temperature in this package's units: it multiplies the pair risk.
    prior_variance : float
        Variance of the independent Gaussian prior, the paper's vartheta (Theorems 2.3 and 2.4).
    inclusion_probability : float
        Probability p of the slab (Theorem 2.5).
    v0 : float
        Largest spike variance in the statement of Theorem 2.5, 1 / (2 n d log d); infinite for d = 1.
    v0_proof : float
        Largest spike variance its proof supports, 1 / (2 n^2 d log d). It takes delta^2 / (2 d log d) with
        delta = 1 / n, a factor n below the statement.
    gamma_u : float
        The theorem's own gamma, which multiplies the n(n-1)-normalised risk.
    gamma_u_limit : float
        Largest gamma_u the underlying lemma covers: (n-1) / (8C) in Lemma 2.1, (n-1) / 8 in Lemma 2.2.
    assumption : {"MA1", "MAinf"}
        The margin assumption.
    C : float
        Constant of the margin assumption.

    See Also
    --------
    theorem_defaults : Compute these from the class sizes and the number of covariates.

    Examples
    --------
    >>> from pymc_pacauc import theorems
    >>> defaults = theorems.theorem_defaults(n_pos=68, n_neg=132, d=7)
    >>> round(defaults.gamma, 2), defaults.within_lemma
    (11.22, True)
    """

    gamma: float
    prior_variance: float
    inclusion_probability: float
    v0: float
    v0_proof: float
    gamma_u: float
    gamma_u_limit: float
    assumption: str
    C: float

    @property
    def within_lemma(self) -> bool:
        """Whether gamma is in the range for which the lemma behind the theorem is stated."""
        return self.gamma_u <= self.gamma_u_limit

    def __repr__(self) -> str:
        theorem = "Theorem 2.3" if self.assumption == "MA1" else "Theorem 2.4"
        margin = f"MA(1, {self.C:g})" if self.assumption == "MA1" else f"MA(inf, {self.C:g})"
        ratio = self.gamma_u / self.gamma_u_limit if self.gamma_u_limit else math.inf
        range_ = "" if self.within_lemma else f", {ratio:.3g} times the largest value Lemma 2.2 covers"
        return (
            f"TheoremDefaults under {margin}\n"
            f"  gamma                 = {self.gamma:.6g}  ({theorem}, in pair units{range_})\n"
            f"  prior_variance        = {self.prior_variance:.6g}  ({theorem})\n"
            f"  inclusion_probability = {self.inclusion_probability:.6g}  (Theorem 2.5)\n"
            f"  v0                    = {self.v0:.6g}  (Theorem 2.5, as stated)\n"
            f"  v0_proof              = {self.v0_proof:.6g}  (Theorem 2.5, as proved)"
        )


def theorem_defaults(
    n_pos: int, n_neg: int, d: int, *, assumption: str = "MA1", C: float | None = None
) -> TheoremDefaults:
    """Compute gamma and the prior's parameters as Theorems 2.3 to 2.5 suggest them.

    ===================== ================================================= =======================================
    assumption            gamma_U of the theorem                            gamma returned
    ===================== ================================================= =======================================
    ``"MA1"`` (2.3, 2.5)  (n-1) / (8C)                                      n+ n- / (4 C n)
    ``"MAinf"`` (2.4)     C sqrt(d n log n)                                 the same times 2 n+ n- / (n(n-1))
    ===================== ================================================= =======================================

    Parameters
    ----------
    n_pos, n_neg : int
        Numbers of positive and negative observations.
    d : int
        Number of covariates.
    assumption : {"MA1", "MAinf"}, default "MA1"
        Margin assumption: ``"MA1"`` (small noise) or ``"MAinf"`` (no restriction). Theorem 2.5 is stated under
        ``"MA1"`` only; its p and v0 do not depend on C and are returned in both cases.
    C : float, optional
        Constant of the assumption, at least 1. By default 1 for ``"MA1"``, which holds without noise, and 4 for
        ``"MAinf"``, which always holds. C is unknown in practice, so choose gamma by cross-validation when it matters.

    Returns
    -------
    TheoremDefaults
        Gamma (dimensionless, multiplying the pair risk), prior variance, inclusion probability and spike variances.

    Raises
    ------
    ValueError
        If a class size or ``d`` is below 1, ``assumption`` is unknown, or ``C`` is below 1 or not finite.
    TypeError
        If a class size or ``d`` is not an int.

    See Also
    --------
    default_gamma : A gamma close to what cross-validation chooses.
    pymc_pacauc.select_gamma : Choose gamma by cross-validation.

    Notes
    -----
    Lemma 2.2, behind Theorem 2.4, asks for gamma_U <= (n-1) / 8, which C sqrt(d n log n) exceeds unless n is large.
    ``within_lemma`` and the repr say so.

    References
    ----------
    J. Ridgway, P. Alquier, N. Chopin, F. Liang (2014), PAC-Bayesian AUC classification and scoring, NeurIPS 27,
    arXiv:1410.1771.

    Examples
    --------
    >>> theorem_defaults(n_pos=68, n_neg=132, d=7)
    TheoremDefaults under MA(1, 1)
      gamma                 = 11.22  (Theorem 2.3, in pair units)
      prior_variance        = 0.285715  (Theorem 2.3)
      inclusion_probability = 0.133122  (Theorem 2.5)
      v0                    = 0.000183535  (Theorem 2.5, as stated)
      v0_proof              = 9.17676e-07  (Theorem 2.5, as proved)
    >>> theorem_defaults(68, 132, 7, assumption="MAinf").within_lemma
    False
    """
    n_pos, n_neg, d = _count("n_pos", n_pos), _count("n_neg", n_neg), _count("d", d)
    if assumption not in ("MA1", "MAinf"):
        raise ValueError(f'assumption must be "MA1" or "MAinf"; got {assumption!r}.')
    if C is None:
        C = 1.0 if assumption == "MA1" else 4.0
    if not (math.isfinite(C) and C >= 1.0):
        raise ValueError(f"C must be a finite number >= 1, as the margin assumption requires; got {C!r}.")
    n = n_pos + n_neg
    if assumption == "MA1":
        gamma_u = limit = (n - 1) / (8.0 * C)
    else:
        gamma_u, limit = C * math.sqrt(d * n * math.log(n)), (n - 1) / 8.0
    spike = math.inf if d == 1 else 1.0 / (2.0 * d * math.log(d))
    return TheoremDefaults(
        gamma=pair_gamma(gamma_u, n_pos, n_neg),
        prior_variance=2.0 / d * (1.0 + 1.0 / (n**2 * d)),
        inclusion_probability=-math.expm1(-1.0 / d),
        v0=spike / n,
        v0_proof=spike / n**2,
        gamma_u=gamma_u,
        gamma_u_limit=limit,
        assumption=assumption,
        C=float(C),
    )


def default_gamma(n_pos: int, n_neg: int) -> float:
    """Compute 4 n+ n- / n, a gamma that needs no cross-validation.

    The value equals 4 / (1/n+ + 1/n-), the effective sample size of two classes: n where they are equally large. It is
    sixteen times the gamma of Theorem 2.3 with C = 1. No theorem suggests it; cross-validation chooses about this
    value, to within a factor of a few (``benchmarks/gamma_stability.py``), where Theorem 2.3's gamma leaves draws close
    to those of the prior.

    Parameters
    ----------
    n_pos, n_neg : int
        Numbers of positive and negative observations.

    Returns
    -------
    float
        Gamma, multiplying the pair risk: what ``gamma="default"`` stands for.

    Raises
    ------
    TypeError
        If a class size is not an integer.
    ValueError
        If a class size is less than 1.

    See Also
    --------
    theorem_defaults : The gamma that the paper's theorems suggest.
    pymc_pacauc.select_gamma : Choose gamma by cross-validation.

    Examples
    --------
    >>> default_gamma(68, 132), 16 * theorem_defaults(68, 132, d=7).gamma
    (179.52, 179.52)
    """
    n_pos, n_neg = _count("n_pos", n_pos), _count("n_neg", n_neg)
    return 4 * n_pos * n_neg / (n_pos + n_neg)


def pair_gamma(gamma_u: float, n_pos: int, n_neg: int) -> float:
    """Convert the theory's gamma, which multiplies the n(n-1)-normalised risk, into the gamma of this package.

    Parameters
    ----------
    gamma_u : float
        Inverse temperature that multiplies the number of misranked ordered pairs divided by n(n-1).
    n_pos, n_neg : int
        Numbers of positive and negative observations; n is their sum.

    Returns
    -------
    float
        The same inverse temperature, multiplying the share of misranked pairs of a positive and a negative observation.

    Raises
    ------
    TypeError
        If a class size is not an integer.
    ValueError
        If a class size is less than 1, or gamma is not positive and finite.

    See Also
    --------
    u_statistic_gamma : The inverse conversion.

    Examples
    --------
    >>> pair_gamma(199 / 8, n_pos=68, n_neg=132)
    11.22
    """
    return _finite("gamma", _positive("gamma_u", gamma_u) * _pair_share(n_pos, n_neg))


def u_statistic_gamma(gamma: float, n_pos: int, n_neg: int) -> float:
    """Convert a gamma of this package into the theory's, which multiplies the n(n-1)-normalised risk.

    Parameters
    ----------
    gamma : float
        Inverse temperature, multiplying the pair risk.
    n_pos, n_neg : int
        Numbers of positive and negative observations.

    Returns
    -------
    float
        The same inverse temperature in the units of the paper's theorems.

    Raises
    ------
    TypeError
        If a class size is not an integer.
    ValueError
        If a class size is less than 1, or gamma is not positive and finite.

    See Also
    --------
    pair_gamma : The inverse conversion.

    Examples
    --------
    >>> u_statistic_gamma(11.22, n_pos=68, n_neg=132)
    24.875
    """
    return _finite("gamma_u", _positive("gamma", gamma) / _pair_share(n_pos, n_neg))


def _pair_share(n_pos: int, n_neg: int) -> float:
    """Compute the share of the ordered pairs i != j that compare two classes: 2 n+ n- / (n(n-1))."""
    n_pos, n_neg = _count("n_pos", n_pos), _count("n_neg", n_neg)
    n = n_pos + n_neg
    return 2 * n_pos * n_neg / (n * (n - 1))  # integers until the division, so exact for any number of pairs


def _count(name: str, value: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}.") from None
    if count < 1:
        raise ValueError(f"{name} must be at least 1; got {count}.")
    if count > sys.maxsize:
        raise ValueError(f"{name} is above 2**63 - 1, more than an array can have.")
    return count


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} would be too large for a floating-point number.")
    return value


def _positive(name: str, value: float) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{name} must be a finite number > 0; got {value!r}.")
    return number

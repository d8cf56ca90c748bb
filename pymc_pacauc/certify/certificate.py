"""Certificate of a fit: a lower bound on the AUC of future pairs, and the conditions under which it holds.

:func:`certificate` computes 1 - B, where B is an upper bound on the expected risk of a score drawn from the posterior:

1. rho(R_n), the expected risk on the training pairs, and KL(rho, prior): in closed form for a Gaussian approximation;
   from draws of SMC by KL = -gamma rho(R_n) - log Z, both shifted by three standard errors; for a fit on sampled pairs
   the risk over all pairs is bounded by :func:`_safe_side`.
2. m, the effective number of independent pairs (:mod:`pymc_pacauc.comparison.sizes`): min(n+, n-) for two classes;
   weights, strata, ordered classes, censored times and groups of dependent rows have their own.
3. B, by PAC-Bayes-kl (default) or Catoni's bound (:mod:`pymc_pacauc.certify.bounds`), or the mean over
   matchings (:mod:`pymc_pacauc.certify.matchings`), at epsilon / ``selected_from``.
4. The mean score is wrong about a pair only if at least half of the draws are, so its risk is at most 2 B.

Hand and Till's M is the mean of K bounds at epsilon / K. Each step has its proof in ``docs/theory/certificates.md``.

To add a bound, see :mod:`pymc_pacauc.certify.bounds`; to certify another result, give it ``fitted_to``, ``mean_risk``
and ``divergence`` (:class:`pymc_pacauc.array_result.ArrayResult`).

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771; further ones in :mod:`pymc_pacauc.certify.bounds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.array_result import ArrayResult, Estimate, HTMLReport, KnownResult
from pymc_pacauc.certify import bounds
from pymc_pacauc.certify.matchings import FOR_THE_DRAWS, bound_of_draws, matching_groups, scores_under
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.ep.posterior import marginal
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import SEED, check_choice, check_probability, check_whole
from pymc_pacauc.problem.problem import two_class_mask
from pymc_pacauc.problem.provenance import Provenance, measure_of, of_comparisons

if TYPE_CHECKING:
    import pymc as pm

BOUNDS = {"kl": "PAC-Bayes-kl", "catoni": "Catoni", "matchings": "Mean over matchings"}
# Standard errors by which a Monte Carlo estimate without a bound is shifted to the worse side: a normal one is beyond
# with probability 0.001. Doubled, with 1e-9, and certificates from draws are lower.
STANDARD_ERRORS = 3.0
# Number of fits (several gammas) among which the best certificate may be chosen, each with draws of its own; doubled,
# 0.0004 less is certified.
COMPARED = 100


@dataclass(frozen=True)
class Certificate(HTMLReport):
    """Lower bound on an AUC, and what it rests on.

    Attributes
    ----------
    auc : float
        Certified AUC of the *randomised* score: draw theta from the posterior, rank by its score. Expected over theta.
    mean_score_auc : float
        Certified AUC of ranking by the posterior mean (NaN where that is no majority vote). Twice the risk: often
        vacuous where ``auc`` is not, though the mean score is usually the better one.
    empirical_auc : float
        AUC of the randomised score on the training pairs.
    divergence : float
        KL(posterior, prior), in nats.
    n_pos, n_neg : int
        Class sizes; for other comparisons see :class:`~pymc_pacauc.results.Provenance`.
    m : float
        Independent comparisons that the bound counts: the size of the smaller class for two classes, all pairs
        weighing the same.
    groups : int
        Number of groups of observations that are the independent units; 0 where observations are.
    comparison : str
        Kind of comparison; ``auc`` is the AUC of two classes, the concordance of ordered classes or censored times.
    epsilon : float
        Probability with which the bound may fail.
    selected_from : int
        Number of priors that epsilon is shared between.
    bound : str
        Its name, and its rate where it has one.
    method : str
        How the posterior was computed.
    gamma : float
        Inverse temperature of the posterior.
    monte_carlo : tuple of float or None
        Standard errors of (mean risk, log evidence) where these were estimated by sampling, else None. The bound is
        computed three of them on the safe side.
    assumptions : tuple of str
        Conditions under which the bound holds, in words.

    See Also
    --------
    certificate : Compute it.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(400, 2))
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=100.0))
    >>> certified = pac.certificate(fit)
    >>> 0.6 < certified.auc < certified.empirical_auc, certified.epsilon
    (True, 0.05)
    """

    auc: float
    mean_score_auc: float
    empirical_auc: float
    divergence: float
    n_pos: int
    n_neg: int
    m: float
    groups: int
    comparison: str
    epsilon: float
    selected_from: int
    bound: str
    method: str
    gamma: float
    monte_carlo: tuple[float, float] | None
    assumptions: tuple[str, ...]

    def __repr__(self) -> str:
        vacuous = " (vacuous)" if self.mean_score_auc <= 0.5 else ""
        mean = "not available" if math.isnan(self.mean_score_auc) else f">= {self.mean_score_auc:.4f}{vacuous}"
        measure = measure_of(self.comparison)
        sure = f"with probability {1 - self.epsilon:g} ({self.bound}, {self.method})"
        return "\n".join(
            [
                f"Certified {measure} >= {self.auc:.4f} {sure}",
                f"  mean score     {mean}",
                f"  on these rows  {self.empirical_auc:.4f} (randomised score, gamma = {self.gamma:g})",
                f"  KL             {self.divergence:.3f} nats from the prior",
                f"  m              {self.m:g} ({_sizes(self)})",
                *(f"  - {sentence}" for sentence in self.assumptions),
            ]
        )


@raises_interrupts
def certificate(
    result: Any,
    epsilon: float = 0.05,
    *,
    selected_from: int = 1,
    bound: str = "kl",
    tuned_prior: str = "refuse",
    groups: ArrayLike | None = None,
    model: pm.Model | None = None,
) -> Certificate:
    """Certify the AUC of a posterior: a lower bound that holds with probability 1 - epsilon.

    The bound holds whatever the distribution of the data, under the conditions that the certificate states:
    observations (or groups of them) independent, identically distributed within each class, the prior fixed before
    these data were seen.

    Parameters
    ----------
    result : approximation, draws, fit or estimator
        An approximation returned by ``pm.fit(method=pac.EP())`` or ``pac.GaussianVB()`` (risk and divergence in closed
        form; if it used some of the pairs only, the risk is still that of all, up to a bound on its error), draws of
        one, or what ``pm.sample(step=pac.TemperingSMC())`` returned (divergence = -gamma E[risk] - log Z, estimated,
        hence on the safe side by three standard errors).
    epsilon : float, default 0.05
        Probability, over the drawing of the data, with which the bound may fail.
    selected_from : int, default 1
        Number of priors (hyper-parameters, transformations of X) compared on the same data, this one among them. An
        estimator's own choice among priors is counted besides.
        Choosing *gamma* alone need not be counted: the bounds hold for all posteriors at once.
    bound : {"kl", "catoni", "matchings"}, default "kl"
        ``"kl"`` (PAC-Bayes-kl), or ``"catoni"``, at a rate that is about the best if the divergence were d and the AUC
        0.85; see :mod:`pymc_pacauc.certify.bounds`. ``"matchings"`` is the tightest by far, for approximations (not
        their draws) of models with two classes all of whose pairs weigh the same; see
        :mod:`pymc_pacauc.certify.matchings`. Choose before looking: the better of two bounds needs ``selected_from=2``.
    tuned_prior : {"refuse", "charge", "accept"}, default "refuse"
        ``"refuse"`` a posterior whose prior was tuned on these data (:func:`~pymc_pacauc.maximize_evidence`,
        :func:`~pymc_pacauc.choose_lengthscale`, an estimator's), or ``"charge"`` for it, where the choice was among
        ``selected_from`` priors fixed beforehand, or ``"accept"`` it, with a caution: the number is then no
        certificate.
    groups : array-like of shape (n,), optional
        A label per observation, such as its patient: groups are the independent units, and observations of one may
        depend on each other in any way. m is then counted in groups (``docs/theory/certificates.md``). Not for
        ``"matchings"``. (In :func:`~pymc_pacauc.leave_out` groups are what is left out together.) An
        estimator that was fitted with ``groups=`` needs none here.
    model : pymc.Model, optional
        Needed for draws with ``groups=`` only: results have a record of their fit. If given, it must be that
        model, data and all.

    Returns
    -------
    Certificate
        The certified AUC, what it was computed from and the conditions under which it holds.

    Raises
    ------
    ValueError
        If the prior was tuned on these data (see ``tuned_prior``), the model has more than AUC terms and a prior, or an
        option is out of its range or not for this result.
    TypeError
        If ``result`` is not of a kind described above. Of an average (``prior="auto"``) and of several classes, pass
        one posterior.

    See Also
    --------
    pymc_pacauc.certify.split : Tighter still, by fitting a part of the rows and certifying on the others.
    pymc_pacauc.certify.holdout : For any score, fixed before the rows were seen.
    auc_interval : An interval on rows that were not fitted, instead of a bound.

    References
    ----------
    O. Catoni (2007), PAC-Bayesian supervised classification: the thermodynamics of statistical learning,
    doi:10.1214/074921707000000391.

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
    _check_options(bound, epsilon, selected_from, tuned_prior)
    options: dict[str, Any] = {"bound": bound, "tuned_prior": tuned_prior, "groups": groups}
    if not (hasattr(result, "fitted_to") and hasattr(result, "mean_risk")):
        from pymc_pacauc.model.results import as_results  # results on arrays are certified without PyMC

        result, *others = as_results(result)
        if others:  # an estimator with a score for each class
            each = (result, *others)
            found = [certificate(one, epsilon / len(each), selected_from=selected_from, **options) for one in each]
            return _mean_of_classes(found, epsilon, sum(one.gamma for one in found))
    result = getattr(result, "certified", result)  # of a mixture over hyper-parameters
    fitted = result.fitted_to
    if tuned_prior == "charge":
        fitted = replace(fitted, tuned_prior=False)
    selected_from *= fitted.priors
    if model is not None:
        from pymc_pacauc.model.results import check_model

        check_model(fitted, model)
    if fitted.comparison == "unordered classes":
        return _of_classes(result, fitted, epsilon, options | {"selected_from": selected_from})
    check_certifiable(fitted)
    if groups is not None:
        fitted = fitted.with_groups(_comparison(result, model), groups)
    _check(result, fitted, bound, tuned_prior)
    if bound == "matchings":
        highest, rate, safe = _over_matchings(result, epsilon, selected_from)
    else:
        m, safe, rate = fitted.m_eff, _safe_side(result, fitted, epsilon, selected_from), math.nan
        known: tuple[float, float, float, float] = (safe.risk, safe.divergence, m, safe.epsilon / selected_from)
        if bound == "kl":
            highest = bounds.pac_bayes_kl(*known, equal_matchings=equal_matchings(fitted))
        else:
            rate = bounds.catoni_rate(m, fitted.coefficients, safe.epsilon)
            highest = bounds.catoni_bound(*known, rate=rate)
    sentences = [*_assumptions(fitted, selected_from), safe.said, getattr(result, "assumption", "")]
    return Certificate(
        auc=1.0 - highest,
        mean_score_auc=max(0.0, 1.0 - 2.0 * highest) if result.gaussian else math.nan,
        empirical_auc=1.0 - result.mean_risk.value,
        divergence=safe.divergence,
        m=fitted.m_eff,
        epsilon=epsilon,
        selected_from=selected_from,
        bound=BOUNDS[bound] if math.isnan(rate) else f"{BOUNDS[bound]}, rate {rate:.4g}",
        monte_carlo=safe.errors,
        assumptions=tuple(filter(None, sentences)),
        **{each: getattr(fitted, each) for each in ("n_pos", "n_neg", "groups", "comparison", "method", "gamma")},
    )


def _check_options(bound: str, epsilon: float, selected_from: int, tuned_prior: str) -> None:
    check_choice("bound", bound, BOUNDS)
    check_choice("tuned_prior", tuned_prior, ("refuse", "charge", "accept"))
    check_probability("epsilon", epsilon)
    check_whole("selected_from", selected_from)
    if tuned_prior == "charge" and selected_from == 1:
        raise ValueError('tuned_prior="charge" needs selected_from > 1, the number of priors that were compared.')


@dataclass(frozen=True)
class SafeSide:
    """Risk and divergence for a bound, moved to the worse side by their Monte Carlo error.

    ``epsilon`` is left for the bound itself; ``errors`` are standard errors of risk and log evidence where there is no
    bound on them, and ``said`` is a sentence about it.
    """

    risk: float
    divergence: float
    epsilon: float
    errors: tuple[float, float] | None = None
    said: str = ""


def _safe_side(result: Any, fitted: Provenance, epsilon: float, selected_from: int) -> SafeSide:
    """Bound the Monte Carlo error of risk and divergence, or shift both by ``STANDARD_ERRORS``.

    The risk of a fit on sampled pairs is estimated from pairs drawn independently. It is replaced by an upper bound
    that may fail with a share ``FOR_THE_DRAWS`` of epsilon. This holds for one posterior, unlike PAC-Bayesian bounds,
    so the share is divided among the fits that may have been compared: ``COMPARED`` for each of the priors.
    """
    risk, divergence = result.mean_risk, result.divergence.value
    if risk.terms:
        part = FOR_THE_DRAWS * epsilon
        highest = bounds.mean_bound(risk.value, risk.error, risk.terms, part / (COMPARED * selected_from))
        highest = min(1.0, highest)
        said = (
            f"The posterior was fitted to {fitted.pairs_used} of the pairs. Its risk over all pairs was estimated from "
            f"pairs drawn independently; the error (at most {highest - risk.value:.1e}) is covered by "
            f"{FOR_THE_DRAWS:.0%} of epsilon, also for the best of {COMPARED} gammas."
        )
        return SafeSide(highest, divergence, epsilon - part, said=said)
    if risk.error == 0.0:
        return SafeSide(risk.value, divergence, epsilon)
    of_evidence = result.evidence.standard_error
    said = (
        f"Risk and log evidence are Monte Carlo estimates (s.e. {risk.error:.1e} and {of_evidence:.2f}); the bound "
        f"uses values {STANDARD_ERRORS:g} s.e. worse, which is not a proof."
    )
    highest = min(1.0, risk.value + STANDARD_ERRORS * risk.error)
    divergence += STANDARD_ERRORS * (fitted.gamma * risk.error + of_evidence)
    return SafeSide(highest, divergence, epsilon, (risk.error, of_evidence), said)


def _over_matchings(result: Any, epsilon: float, selected_from: int) -> tuple[float, float, SafeSide]:
    """Bound the risk of a draw from an approximation by the mean over matchings of the training rows, at a rate."""
    fit = _fit_of(
        result, 'bound="matchings" needs the training rows and the approximation, which draws alone do not contain'
    )
    positive, risk, divergence = two_class_mask(fit.problem), result.mean_risk.value, result.divergence.value
    scores = scores_under(fit.problem, fit.posterior.natural, np.ones(positive.size, dtype=bool))
    typical = min(result.fitted_to.coefficients, 20)  # nats: a divergence guessed without the data
    options: dict[str, Any] = {"rng": np.random.default_rng(SEED), "compared": COMPARED}
    found = bound_of_draws(scores, divergence, matching_groups(positive), typical, epsilon / selected_from, **options)
    said = (
        f"The Monte Carlo error of a mean over {found.draws} draws ({found.margin:.2g} nats) is covered by "
        f"{FOR_THE_DRAWS:.0%} of epsilon, also for the best of {COMPARED} gammas."
    )
    return found.risk, found.rate, SafeSide(risk, divergence, epsilon, said=said)


TUNED = (
    "The prior was tuned on these data (by evidence), and a certificate needs one that was fixed before they were "
    "seen. Tune it on other rows."
)


def check_certifiable(fitted: Provenance) -> None:
    """Refuse comparisons and models for which there is no bound, whatever the posterior."""
    if fitted.terms != 1 and fitted.comparison != "unordered classes":
        raise ValueError(f"result has {fitted.terms} AUC terms, and a certificate is for one.")
    if not fitted.only_auc:
        raise ValueError("result cannot be certified: its model has a likelihood or a potential besides the AUC term.")
    if fitted.comparison == "partial AUC":
        raise ValueError("There is no certificate for a partial AUC, no mean over fixed pairs: fit without max_fpr.")
    if fitted.m_eff == 0.0:
        raise ValueError(
            'There is no certificate with estimated weights (weights="ipcw", or horizon=), which depend on all '
            "outcomes: certify Harrell's concordance (weights=None, horizon=None)."
        )


def certified(result: Any, epsilon: float = 0.05, selected_from: int = 1) -> tuple[Certificate | None, str]:
    """Return the certificate by the default bound, or None and why there is none."""
    check_probability("epsilon", epsilon)
    try:
        return certificate(result, epsilon, selected_from=selected_from), ""
    except ValueError as error:
        return None, str(error)


def certified_auc(result: Any, epsilon: float = 0.05, selected_from: int = 1) -> float:
    """Return the certified AUC by the default bound; NaN where a posterior has no certificate."""
    found, _ = certified(result, epsilon, selected_from)
    return math.nan if found is None else found.auc


def _check(result: Any, fitted: Provenance, bound: str, tuned_prior: str) -> None:
    """Refuse posteriors without a certificate."""
    if fitted.groups and bound == "matchings":
        raise ValueError('bound="matchings" is for independent observations, not groups: use bound="kl" or "catoni".')
    if fitted.ties != "half" and fitted.method == "TemperingSMC":
        raise ValueError(f'A certified AUC needs ties="half"; these draws have ties={fitted.ties!r}.')
    if not math.isfinite(result.divergence.value):
        infinite = "is infinite: the prior gives some coefficients a sign or a range, which a Gaussian leaves"
        why = infinite if math.isinf(result.divergence.value) else "has no closed form"
        raise ValueError(
            f"result cannot be certified: the divergence of this approximation from its prior {why}. Certify the exact "
            "posterior, sampled by pm.sample(step=pac.TemperingSMC())."
        )
    if fitted.tuned_prior and tuned_prior == "refuse":
        raise ValueError(
            f"{TUNED} If the choice was among G priors fixed beforehand, pass selected_from=G and "
            'tuned_prior="charge"; for a number without a guarantee, tuned_prior="accept".'
        )


def _fit_of(result: Any, why: str) -> Fit:
    """Return the fit of a result; refuse draws, with the reason ``why`` they do not suffice."""
    fit: Fit | None = getattr(result, "fit", None)
    if fit is None:
        raise ValueError(f"{why}: pass the result of pm.fit(method=pac.EP()).")
    return fit


def _of_classes(result: Any, fitted: Provenance, epsilon: float, options: dict[str, Any]) -> Certificate:
    """Certify Hand and Till's M: the mean of a bound for each class's score at epsilon / K, K classes.

    The proof is in ``docs/theory/certificates.md``.
    """
    if options["bound"] == "matchings":
        raise ValueError('M, of unordered classes, is certified with bound="kl" or "catoni"; got bound="matchings".')
    fit = _fit_of(
        result,
        "A certificate of M, of unordered classes, needs the divergence of each class's coefficients from their prior, "
        "which draws do not contain",
    )
    number, found, groups = fitted.terms, [], options.pop("groups")
    if fit.problem.sites is not None or len(fit.problem.parts) != number:
        raise ValueError(
            "M, of unordered classes, is certified where each class has Gaussian coefficients of its own, independent "
            f"a priori; result has {len(fit.problem.parts)} independent part(s) for {number} classes."
        )
    for part in fit.problem.parts:
        pairs = replace(part.problem.pairs, kind="two classes")
        q = marginal(fit.posterior, part.problem.scores, part.columns)
        assert q is not None  # the marginal of a Gaussian
        risk = scores_under(part.problem, q, np.ones(pairs.n, dtype=bool)).risk(pairs)
        own = replace(fitted, **of_comparisons([pairs]), terms=1, priors=1)
        own = own if groups is None else own.with_groups(pairs, groups)
        known = KnownResult(own, ArrayResult(fit).evidence, Estimate(risk), Estimate(q.divergence), True, result.caveat)
        found.append(certificate(known, epsilon / number, **options))

    return _mean_of_classes(found, epsilon, fitted.gamma)


def _mean_of_classes(found: list[Certificate], epsilon: float, gamma: float) -> Certificate:
    """Certify M by the mean of the classes' certificates, each at epsilon / K; ``gamma`` multiplies 1 - M."""
    errors = [each.monte_carlo for each in found if each.monte_carlo]
    sentence = f"Each of the {len(found)} scores is certified at epsilon / {len(found)}; M is their mean."
    aucs = ("auc", "mean_score_auc", "empirical_auc")
    means: dict[str, Any] = {name: float(np.mean([getattr(each, name) for each in found])) for name in aucs}
    return replace(
        found[0],
        **means,
        divergence=sum(each.divergence for each in found),
        m=min(each.m for each in found),
        comparison="unordered classes",
        epsilon=epsilon,
        gamma=gamma,
        monte_carlo=tuple(np.max(errors, axis=0).tolist()) if errors else None,
        assumptions=(*dict.fromkeys(said for each in found for said in each.assumptions), sentence),
    )


def equal_matchings(fitted: Provenance) -> bool:
    """Return whether the pairs are a mean of matchings of one size, that of the smaller class."""
    return fitted.comparison == "two classes" and fitted.m_eff == min(fitted.n_pos, fitted.n_neg)


def _comparison(result: Any, model: pm.Model | None) -> Pairs:
    """Return the comparison of a fit, or of the model."""
    if model is None or hasattr(result, "fit"):
        why = "groups= needs the observations that are compared, which draws do not contain without their model="
        return _fit_of(result, why).problem.pairs
    from pymc_pacauc.model.auc_term import auc_terms

    return auc_terms(model)[0].comparison


def _sizes(certified: Certificate) -> str:
    n_pos, n_neg = certified.n_pos, certified.n_neg
    known = {"two classes": f"n+ = {n_pos}, n- = {n_neg}", "censored times": f"{n_pos} events and {n_neg} others"}
    said = known.get(certified.comparison, f"{certified.comparison}, {n_pos + n_neg} observations")
    return said + (f", in {certified.groups} groups" if certified.groups else "")


def _independence(fitted: Provenance) -> str:
    if fitted.groups:
        return (
            f"Assumes that, given the labels, the {fitted.groups} groups are independent (observations of one may "
            "depend on each other); certifies the comparison of new covariates drawn given these, the pairs within a "
            "group among them."
        )
    if equal_matchings(fitted):
        return "Assumes that within each class observations are independent and identically distributed."
    given = "times, events" if fitted.comparison == "censored times" else "classes"
    return (
        f"Assumes that, given {given}, strata and weights, the covariates of different observations are independent; "
        "certifies the comparison of new covariates drawn given these."
    )


def _assumptions(fitted: Provenance, selected_from: int) -> list[str]:
    """Return the conditions of the bound that follow from the record of a fit, in words."""
    counted = "Choosing gamma costs nothing; for the best of G priors pass selected_from=G."
    if selected_from > 1:
        counted = f"Covers a choice among {selected_from} priors or settings, each at epsilon / {selected_from}."
    sentences = ["NO GUARANTEE: the prior was tuned on these data."] if fitted.tuned_prior else []
    fixed = "Assumes that the prior was fixed before these data were seen, but for choices that are counted."
    sentences += [_independence(fitted), f"{fixed} {counted}"]
    if fitted.own_scales:
        sentences.append(
            "The estimator took scales of the columns (for the prior, their correlations too) from these rows, which "
            "the bound does not cover; centres change no ranking. For a bound without this, scale the columns by "
            'reference values and use prior="ridge", standardize=False.'
        )
    elif fitted.standardized:
        sentences.append(
            "CAUTION: the covariates look centred, scaled or ranked with these rows. Then the prior of the scores "
            "depends on the data, and the bound is not exact; standardise with reference values or other rows."
        )
    else:
        sentences.append("Assumes that covariates were not standardised with these rows.")
    if fitted.sample_features:
        sentences.append(
            "CAUTION: the features were made from these rows. The bound is then exact only for lengthscales fixed "
            "beforehand and features without truncation; make them from other rows."
        )
    return sentences

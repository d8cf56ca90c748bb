"""The protocol of all results (:class:`Result`), a fit on arrays as a result, and reports shown as HTML.

Draws, files of them and PyMC's approximations follow the same protocol (:mod:`pymc_pacauc.model.results`).

A printed report is a title, then indented lines: a label and a value with two spaces or more between them, a note that
starts with a dash, or a sentence. :func:`html_report` turns it into a table for notebooks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Protocol

import numpy as np

from pymc_pacauc.ep.importance import sampled_expected_risk
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.numerics import SEED
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.smc.log_evidence import LogEvidence


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error: zero where it is exact, NaN where it is not known.

    If the number is a mean of independent terms in an interval of length one, plus an exact constant, ``terms`` is
    their number, and its error has a bound (:func:`pymc_pacauc.certify.bounds.mean_bound`); else 0.
    """

    value: float
    error: float = 0.0
    terms: int = 0

    def __str__(self) -> str:
        return f"{self.value:.4f}" if not self.error > 0 else f"{self.value:.4f} ± {self.error:.4f}"


class Result(Protocol):
    """Attributes that every posterior has."""

    @property
    def fitted_to(self) -> Provenance:
        """Record of what it was fitted to."""

    @property
    def evidence(self) -> LogEvidence:
        """Log evidence with its standard error."""

    @property
    def mean_risk(self) -> Estimate:
        """Posterior expectation of the training pairs' risk; of a Gaussian, every tie costing one half."""

    @property
    def divergence(self) -> Estimate:
        """KL(posterior, prior); NaN where it has no closed form and cannot be estimated."""

    @property
    def gaussian(self) -> bool:
        """Whether the posterior is a Gaussian: then the risk of its mean score is at most twice that of a draw."""

    @property
    def caveat(self) -> str:
        """Why numbers derived from this posterior are not reliable; empty where they are."""


class FitResult:
    """The attributes of a :class:`Result` that follow from a fit on arrays."""

    fit: Fit

    @cached_property
    def mean_risk(self) -> Estimate:
        """Posterior expectation of the risk of all pairs, also of those not used by the fit; a tie costs one half."""
        problem = self.fit.problem
        if self.fit.pairs_used < problem.pairs.n_pairs:
            drawn = 2_000_000  # pairs, whatever the subsample of the fit; of twice as many the error is 1.4 times less
            rng = np.random.default_rng([SEED, drawn])  # no stream of a subsample, which q depends on
            return Estimate(*sampled_expected_risk(problem, self.fit.posterior.natural, drawn, rng), drawn)
        unpaid = (0.5 - problem.tie_cost) * problem.tied_share
        return Estimate(self.fit.expected_risk + unpaid)

    @property
    def divergence(self) -> Estimate:
        """KL(posterior, prior) in nats; NaN where it has no closed form."""
        return Estimate(self.fit.divergence)

    @property
    def gaussian(self) -> bool:
        """Whether the posterior is a Gaussian."""
        return self.fit.problem.spikes is None

    @property
    def caveat(self) -> str:
        """Why numbers derived from this posterior are not reliable; empty where they are."""
        return "" if self.fit.converged else "the fit did not converge"


@dataclass(frozen=True, eq=False)
class ArrayResult(FitResult):
    """A fit on arrays as a :class:`Result`; ``record`` is its provenance, where that is known already."""

    fit: Fit
    record: Provenance | None = None

    @cached_property
    def fitted_to(self) -> Provenance:
        record = fitted_to_problem(self.fit.problem, self.fit.method) if self.record is None else self.record
        return with_pairs(replace(record, gamma=self.fit.problem.gamma), self.fit)

    @property
    def evidence(self) -> LogEvidence:
        error = self.fit.log_evidence_error
        return LogEvidence(self.fit.log_evidence, error, error, float("nan"), True)


@dataclass(frozen=True, eq=False)
class KnownResult:
    """A :class:`Result` as numbers: without the rows they were computed from, or of a part of a fit.

    ``assumption`` is a sentence that a certificate of it adds to its own.
    """

    fitted_to: Provenance
    evidence: LogEvidence
    mean_risk: Estimate
    divergence: Estimate
    gaussian: bool
    caveat: str
    assumption: str = ""


def gibbs_result(fitted: Provenance, risk: Estimate, evidence: LogEvidence) -> KnownResult:
    """Return an exact Gibbs posterior as numbers, given estimates of its mean risk and of its evidence."""
    return KnownResult(fitted, evidence, risk, gibbs_divergence(fitted.gamma, risk, evidence), False, "")


def gibbs_divergence(gamma: float, risk: Estimate, evidence: LogEvidence) -> Estimate:
    """Compute KL(posterior, prior) of an exact Gibbs posterior, -gamma E[risk] - log Z, from estimates of both."""
    value = max(0.0, -gamma * risk.value - evidence.estimate)
    return Estimate(value, gamma * risk.error + evidence.standard_error)


def stats_of(result: Result) -> dict[str, Any]:
    """Return the numbers that every draw carries, and that :class:`~pymc_pacauc.model.results.Draws` reads."""
    return {
        **result.fitted_to.as_stats(),
        "gamma": result.fitted_to.gamma,
        "log_evidence": result.evidence.estimate,
        "log_evidence_variance": result.evidence.standard_error**2,
        "expected_risk": result.mean_risk.value,
        "expected_risk_variance": result.mean_risk.error**2,
        "expected_risk_terms": result.mean_risk.terms,
        "divergence": result.divergence.value,
    }


def with_pairs(fitted: Provenance, fit: Fit) -> Provenance:
    """Add to the record the number of pairs that a fit used, and its sampling error, where these are not all pairs."""
    if fit.pairs_used == fit.problem.pairs.n_pairs:
        return fitted
    error = fit.sampling_error
    return replace(fitted, pairs_used=fit.pairs_used, mean_error=error.mean, log_evidence_error=error.log_evidence)


def html_report(text: str) -> str:
    """Convert a printed report to HTML.

    Examples
    --------
    >>> print(html_report("A fit\\n  log Z    -3.1\\n  - Assumes < 5 rows."))
    <p><strong>A fit</strong></p>
    <table class="dataframe"><tr><th>log Z</th><td style="text-align: left">-3.1</td></tr></table>
    <ul><li>Assumes &lt; 5 rows.</li></ul>
    """
    title, *lines = text.splitlines()
    rows, notes = [], []
    for line in lines:
        label, *value = re.split(r"\s{2,}", escape(line.strip()), maxsplit=1)
        if label.startswith("- "):
            notes.append(f"<li>{' '.join([label, *value]).removeprefix('- ')}</li>")
        elif value:
            rows.append(f'<tr><th>{label}</th><td style="text-align: left">{value[0]}</td></tr>')
        else:
            rows.append(f'<tr><td colspan="2" style="text-align: left">{label}</td></tr>')
    parts = [f"<p><strong>{escape(title)}</strong></p>"]
    parts += [f'<table class="dataframe">{"".join(rows)}</table>'] * bool(rows)  # styled like pandas' frames
    parts += [f"<ul>{''.join(notes)}</ul>"] * bool(notes)
    return "\n".join(parts)


class HTMLReport:
    """A result whose ``repr`` is a report, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        return html_report(repr(self))

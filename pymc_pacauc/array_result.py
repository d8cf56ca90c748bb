"""What every posterior knows of itself, and a fit on arrays as such a result.

Draws, files of them and PyMC's approximations follow the same protocol (:mod:`pymc_pacauc.model.results`).

Printed reports: what ``repr`` says of a result is a title, then indented lines, which are a label and a value with two
spaces or more between them, a note that starts with a dash, or a sentence; notebooks show it as a table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Protocol

import numpy as np

from pymc_pacauc.ep.importance import sampled_expected_risk
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.smc.log_evidence import LogEvidence

RISK_TERMS = 2_000_000  # pairs drawn for the expected risk of a fit on a subsample of the pairs,
RISK_SEED = (31415, 92653, 58979)  # by a stream that no subsample uses: they must not depend on what q was fitted to


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error: zero where it is exact, NaN where it is not known.

    ``terms`` is the number of independent terms in an interval of length one that it is a mean of, up to an exact
    constant, where it is one: then its error has a bound (:func:`pymc_pacauc.certify.bounds.mean_bound`). Else 0.
    """

    value: float
    error: float
    terms: int = 0

    def __str__(self) -> str:
        return f"{self.value:.4f}" if not self.error > 0 else f"{self.value:.4f} ± {self.error:.4f}"


class Result(Protocol):
    """What every posterior knows of itself."""

    @property
    def fitted_to(self) -> Provenance:
        """What it was fitted to."""

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
        """Whether the posterior is a Gaussian, so that ranking by its mean is a majority vote."""

    @property
    def caveat(self) -> str:
        """Why numbers derived from this posterior should not be trusted; empty where nothing is wrong."""


@dataclass(frozen=True, eq=False)
class ArrayResult:
    """A fit on arrays as a :class:`Result`; ``record`` is what it was fitted to, where that is known already."""

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

    @cached_property
    def mean_risk(self) -> Estimate:
        """Every tie costing one half, whatever the fit was told; of all pairs, whichever the fit used."""
        problem = self.fit.problem
        if self.fit.pairs_used < problem.pairs.n_pairs:
            rng = np.random.default_rng(RISK_SEED)
            return Estimate(*sampled_expected_risk(problem, self.fit.posterior.natural, RISK_TERMS, rng), RISK_TERMS)
        unpaid = (0.5 - problem.tie_cost) * problem.tied_share
        return Estimate(self.fit.expected_risk + unpaid, 0.0)

    @property
    def divergence(self) -> Estimate:
        return Estimate(self.fit.divergence, 0.0)

    @property
    def gaussian(self) -> bool:
        return self.fit.problem.spikes is None

    @property
    def caveat(self) -> str:
        return "" if self.fit.converged else "the fit did not converge"


def with_pairs(fitted: Provenance, fit: Fit) -> Provenance:
    """The record with what a fit says about the pairs it used, where these are not all."""
    if fit.pairs_used == fit.problem.pairs.n_pairs:
        return fitted
    error = fit.sampling_error
    return replace(fitted, pairs_used=fit.pairs_used, mean_error=error.mean, log_evidence_error=error.log_evidence)


def html_report(text: str) -> str:
    """A report in HTML.

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
    parts += [f'<table class="dataframe">{"".join(rows)}</table>'] * bool(rows)  # the class: styled as frames are
    parts += [f"<ul>{''.join(notes)}</ul>"] * bool(notes)
    return "\n".join(parts)


class HTMLReport:
    """A result whose ``repr`` is a report, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        return html_report(repr(self))

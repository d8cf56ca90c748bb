"""Draws of an estimator's posterior as ArviZ data. This imports PyMC and ArviZ, which nothing else here does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_pacauc.estimator.posterior import ScorePosterior

__all__ = ["inference_data_of"]


def inference_data_of(posterior: ScorePosterior, features: Sequence[str], draws: int, seed: int) -> Any:
    """Draws of ``coef``, the coefficients of X (``theta`` of kernel features), and what certificates need."""
    from pymc_pacauc.model.compat import dataset, inference_data

    rng = np.random.default_rng(seed)
    result = posterior.result
    fitted = posterior.fitted_to
    theta = posterior.draw(draws, rng)
    risk = posterior.fit.problem.risk(theta)
    evidence, mean_risk = result.evidence, result.mean_risk
    constants = {
        **fitted.as_stats(),
        "gamma": fitted.gamma,
        "log_evidence": evidence.estimate,
        "log_evidence_variance": evidence.standard_error**2,
        "expected_risk": mean_risk.value,
        "expected_risk_variance": mean_risk.error**2,
        "expected_risk_error": mean_risk.error,
        "expected_risk_terms": mean_risk.terms,
        "divergence": result.divergence.value,
        "converged": int(posterior.fit.converged),
        "run": 0,
    }
    stats = dataset({"risk": risk[None]}).assign({name: ((), value) for name, value in constants.items()})
    if posterior.features is None:
        coords = {"feature": list(features)}
        drawn = dataset({"coef": (theta / posterior.columns.scale)[None]}, coords=coords, dims={"coef": ["feature"]})
    else:
        drawn = dataset({"theta": theta[None]}, dims={"theta": ["kernel_feature"]})
    return inference_data({"posterior": drawn, "sample_stats": stats})

"""Types of results, errors and warnings, for ``isinstance``, ``except`` and annotations; draws without their data.

Functions of the package return or raise them; users do not make them by hand.

>>> import pymc_pacauc as pac
>>> isinstance(pac.auc_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), pac.results.AUCInterval)
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "pymc_pacauc",
    submod_attrs={
        "analysis.evaluate": ["AUCComparison", "AUCInterval"],
        "analysis.maximize": ["EvidenceMaximum"],
        "analysis.scorecard": ["Scorecard"],
        "analysis.select_gamma": ["GammaSelection"],
        "analysis.threshold": ["Threshold"],
        "certify.certificate": ["Certificate"],
        "certify.held_out": ["HoldOutCertificate", "SplitCertificate"],
        "ep.leave_out": ["LeaveOut"],
        "ep.loop": ["ConvergenceWarning", "UnsupportedError"],
        "ep.plan": ["Plan"],
        "model.approximation": ["EPApproximation", "ImportanceSample"],
        "model.auc_term": ["NotLinearGaussianError"],
        "model.inference": ["ScaleWarning"],
        "model.results": ["without_data"],
        "problem.provenance": ["Provenance"],
        "smc.log_evidence": ["LogEvidence"],
        "smc.tempering": ["TemperingWarning"],
        "tune.evidence": ["LengthscaleChoice"],
    },
)

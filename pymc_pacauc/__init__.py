"""PAC-Bayesian AUC scoring in PyMC.

The Gibbs posterior ``prior(theta) * exp(-gamma * risk(theta))``, where ``risk`` is one minus the AUC, by tempering SMC
and by expectation propagation (Ridgway, Alquier, Chopin and Liang, 2014).

Names are imported when they are first used (PEP 562), so importing the package costs nothing and its array layer
works without PyMC. A public name is one line in ``_MODULE_OF`` and one under ``TYPE_CHECKING``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULE_OF = {
    "AUCPotential": "model.potential",
    "ConvergenceWarning": "ep",
    "Dataset": "datasets",
    "EP": "model.approximation",
    "GaussianVB": "model.approximation",
    "NotLinearGaussian": "model.extract",
    "SpikeSlab": "model.spike_slab",
    "TemperingSMC": "model.step",
    "TemperingWarning": "smc.diagnose",
    "annotate": "model.annotate",
    "at_gamma": "model.path",
    "auc_risk": "model.potential",
    "certificate": "certify",
    "choose_threshold": "roc_curve",
    "delong": "roc_curve",
    "empirical_risk": "risk",
    "gp_evidence_gradient": "model.gp",
    "inclusion_probability": "model.spike_slab",
    "leave_out": "model.approximation",
    "linear_risk": "risk",
    "load_colon": "datasets",
    "load_credit": "datasets",
    "load_dna": "datasets",
    "load_glass": "datasets",
    "load_pima": "datasets",
    "load_spect": "datasets",
    "log_evidence": "model.path",
    "maximize_evidence": "hyperparameters",
    "pair_gamma": "priors",
    "plot_gamma_path": "plots",
    "plot_inclusion": "plots",
    "plot_marginals": "plots",
    "plot_regularization_path": "plots",
    "plot_roc": "plots",
    "plot_scores": "plots",
    "plot_tempering": "plots",
    "predict_gp": "model.gp",
    "predict_scores": "predict",
    "predictive_model": "model.predictive",
    "probability_above": "predict",
    "rank_uncertainty": "predict",
    "regularization_path": "regularization",
    "roc": "roc_curve",
    "select_gamma": "selection",
    "summary": "summarize",
    "tempering_path": "model.path",
    "theorem_defaults": "priors",
    "u_statistic_gamma": "priors",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from pymc_pacauc.certify import certificate as certificate
    from pymc_pacauc.datasets import Dataset as Dataset
    from pymc_pacauc.datasets import load_colon as load_colon
    from pymc_pacauc.datasets import load_credit as load_credit
    from pymc_pacauc.datasets import load_dna as load_dna
    from pymc_pacauc.datasets import load_glass as load_glass
    from pymc_pacauc.datasets import load_pima as load_pima
    from pymc_pacauc.datasets import load_spect as load_spect
    from pymc_pacauc.ep import ConvergenceWarning as ConvergenceWarning
    from pymc_pacauc.hyperparameters import maximize_evidence as maximize_evidence
    from pymc_pacauc.model.annotate import annotate as annotate
    from pymc_pacauc.model.approximation import EP as EP
    from pymc_pacauc.model.approximation import GaussianVB as GaussianVB
    from pymc_pacauc.model.approximation import leave_out as leave_out
    from pymc_pacauc.model.extract import NotLinearGaussian as NotLinearGaussian
    from pymc_pacauc.model.gp import gp_evidence_gradient as gp_evidence_gradient
    from pymc_pacauc.model.gp import predict_gp as predict_gp
    from pymc_pacauc.model.path import at_gamma as at_gamma
    from pymc_pacauc.model.path import log_evidence as log_evidence
    from pymc_pacauc.model.path import tempering_path as tempering_path
    from pymc_pacauc.model.potential import AUCPotential as AUCPotential
    from pymc_pacauc.model.potential import auc_risk as auc_risk
    from pymc_pacauc.model.predictive import predictive_model as predictive_model
    from pymc_pacauc.model.spike_slab import SpikeSlab as SpikeSlab
    from pymc_pacauc.model.spike_slab import inclusion_probability as inclusion_probability
    from pymc_pacauc.model.step import TemperingSMC as TemperingSMC
    from pymc_pacauc.plots import plot_gamma_path as plot_gamma_path
    from pymc_pacauc.plots import plot_inclusion as plot_inclusion
    from pymc_pacauc.plots import plot_marginals as plot_marginals
    from pymc_pacauc.plots import plot_regularization_path as plot_regularization_path
    from pymc_pacauc.plots import plot_roc as plot_roc
    from pymc_pacauc.plots import plot_scores as plot_scores
    from pymc_pacauc.plots import plot_tempering as plot_tempering
    from pymc_pacauc.predict import predict_scores as predict_scores
    from pymc_pacauc.predict import probability_above as probability_above
    from pymc_pacauc.predict import rank_uncertainty as rank_uncertainty
    from pymc_pacauc.priors import pair_gamma as pair_gamma
    from pymc_pacauc.priors import theorem_defaults as theorem_defaults
    from pymc_pacauc.priors import u_statistic_gamma as u_statistic_gamma
    from pymc_pacauc.regularization import regularization_path as regularization_path
    from pymc_pacauc.risk import empirical_risk as empirical_risk
    from pymc_pacauc.risk import linear_risk as linear_risk
    from pymc_pacauc.roc_curve import choose_threshold as choose_threshold
    from pymc_pacauc.roc_curve import delong as delong
    from pymc_pacauc.roc_curve import roc as roc
    from pymc_pacauc.selection import select_gamma as select_gamma
    from pymc_pacauc.smc.diagnose import TemperingWarning as TemperingWarning
    from pymc_pacauc.summarize import summary as summary


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

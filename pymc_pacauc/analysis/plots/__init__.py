"""Figures: each function draws on ``ax`` or on a new figure and returns the axes. They need the ``plots`` extra."""

from pymc_pacauc.analysis.plots.coefficients import plot_inclusion, plot_marginals, plot_regularization_path
from pymc_pacauc.analysis.plots.ranking import plot_roc, plot_scores
from pymc_pacauc.analysis.plots.survival import plot_survival
from pymc_pacauc.analysis.plots.temperature import plot_gamma_path, plot_tempering

__all__ = [
    "plot_gamma_path",
    "plot_inclusion",
    "plot_marginals",
    "plot_regularization_path",
    "plot_roc",
    "plot_scores",
    "plot_survival",
    "plot_tempering",
]

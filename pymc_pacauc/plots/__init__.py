"""Figures: each function draws on ``ax`` or on a new figure and returns the axes. They need the ``plots`` extra."""

from pymc_pacauc.plots.coefficients import plot_inclusion, plot_marginals, plot_regularization_path
from pymc_pacauc.plots.ranking import plot_roc, plot_scores
from pymc_pacauc.plots.temperature import plot_gamma_path, plot_tempering

__all__ = [
    "plot_gamma_path",
    "plot_inclusion",
    "plot_marginals",
    "plot_regularization_path",
    "plot_roc",
    "plot_scores",
    "plot_tempering",
]

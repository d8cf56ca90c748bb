"""Figures: each function draws on ``ax`` or on a new figure and returns the axes. They need the ``plots`` extra."""

import lazy_loader

# Imported when they are first used: those of scores alone do not import PyMC.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "coefficients": [
            "plot_compare",
            "plot_decision_curve",
            "plot_inclusion",
            "plot_marginals",
            "plot_regularization_path",
        ],
        "ranking": ["plot_precision_recall", "plot_roc", "plot_scores", "plot_survival"],
        "temperature": ["plot_gamma_path", "plot_tempering"],
    },
)

"""Figures: each function draws on ``ax`` or on a new figure and returns the axes. They need the ``plots`` extra.

>>> import pymc_pacauc as pac
>>> from matplotlib.figure import Figure
>>> ax = pac.plots.plot_roc(pac.roc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), ax=Figure().subplots())
>>> ax.get_xlabel()
'false positive rate'
"""

import lazy_loader

# Imported when they are first used: those of scores alone do not import PyMC.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "fits": [
            "plot_compare",
            "plot_gamma_path",
            "plot_inclusion",
            "plot_marginals",
            "plot_regularization_path",
            "plot_tempering",
        ],
        "ranking": [
            "plot_decision_curve",
            "plot_precision_recall",
            "plot_roc",
            "plot_scores",
            "plot_shapes",
            "plot_survival",
        ],
    },
)

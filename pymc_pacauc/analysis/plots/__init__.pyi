# The names of pac.plots: one line each. `__init__.py` imports them from here when they are first used.
from .fits import plot_compare as plot_compare
from .fits import plot_gamma_path as plot_gamma_path
from .fits import plot_inclusion as plot_inclusion
from .fits import plot_marginals as plot_marginals
from .fits import plot_regularization_path as plot_regularization_path
from .fits import plot_tempering as plot_tempering
from .ranking import plot_decision_curve as plot_decision_curve
from .ranking import plot_precision_recall as plot_precision_recall
from .ranking import plot_roc as plot_roc
from .ranking import plot_scores as plot_scores
from .ranking import plot_shapes as plot_shapes
from .ranking import plot_survival as plot_survival

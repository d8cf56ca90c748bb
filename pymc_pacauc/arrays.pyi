# The names of pac.arrays: one line each. `arrays.py` imports them from here when they are first used.
from .comparison.censored import concordance as concordance
from .comparison.censored import concordance_risk as concordance_risk
from .comparison.kinds import label_comparison as label_comparison
from .comparison.kinds import ordered_classes as ordered_classes
from .comparison.kinds import stratified as stratified
from .comparison.pairs import Pairs as Pairs
from .comparison.pairs import bipartite as bipartite
from .comparison.risk import LinearRisk as LinearRisk
from .comparison.risk import empirical_risk as empirical_risk
from .comparison.risk import linear_risk as linear_risk
from .comparison.risk import pair_risk as pair_risk
from .ep.results import Fit as Fit
from .fitting import fit as fit  # by returns_early: Ctrl-C returns the fit as it is
from .problem.additive_features import AdditiveFeatures as AdditiveFeatures
from .problem.additive_features import additive_features as additive_features
from .problem.kernel_features import KernelFeatures as KernelFeatures
from .problem.kernel_features import kernel_features as kernel_features
from .problem.problem import Problem as Problem
from .problem.problem import linear_gaussian_problem as linear_gaussian_problem
from .problem.problem import spike_slab_problem as spike_slab_problem
from .smc.paths import bridge_path as bridge_path
from .smc.paths import prior_path as prior_path
from .smc.tempering import Settings as Settings
from .smc.tempering import run_tempering as run_tempering
from .tune.evidence import choose_lengthscale as choose_lengthscale
from .tune.gamma import GammaChoice as GammaChoice
from .tune.gamma import choose_gamma as choose_gamma

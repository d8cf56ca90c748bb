"""The engines on NumPy arrays, for people without PyMC: build a problem, fit it, sample it.

>>> import numpy as np
>>> from pymc_pacauc import arrays
>>> X = np.random.default_rng(1).normal(size=(50, 2))
>>> problem = arrays.linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=50.0)
>>> arrays.fit(problem).converged
True
"""

from pymc_pacauc.comparison.censored import concordance, concordance_risk
from pymc_pacauc.comparison.kinds import label_comparison, ordered_classes, stratified
from pymc_pacauc.comparison.pairs import Pairs, bipartite
from pymc_pacauc.comparison.risk import LinearRisk, empirical_risk, linear_risk, pair_risk
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit as fit_to_the_end
from pymc_pacauc.interrupt import returns_early
from pymc_pacauc.problem.additive_features import AdditiveFeatures, additive_features
from pymc_pacauc.problem.kernel_features import KernelFeatures, kernel_features
from pymc_pacauc.problem.problem import Problem, linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from pymc_pacauc.tune.evidence import choose_lengthscale
from pymc_pacauc.tune.gamma import GammaChoice, choose_gamma

__all__ = [
    "AdditiveFeatures",
    "Fit",
    "GammaChoice",
    "KernelFeatures",
    "LinearRisk",
    "Pairs",
    "Problem",
    "Settings",
    "additive_features",
    "bipartite",
    "bridge_path",
    "choose_gamma",
    "choose_lengthscale",
    "concordance",
    "concordance_risk",
    "empirical_risk",
    "fit",
    "kernel_features",
    "label_comparison",
    "linear_gaussian_problem",
    "linear_risk",
    "ordered_classes",
    "pair_risk",
    "prior_path",
    "run_tempering",
    "spike_slab_problem",
    "stratified",
]

fit = returns_early(fit_to_the_end)

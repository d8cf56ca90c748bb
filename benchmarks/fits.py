"""One fit of each learner at fixed hyper-parameters, for measuring time and memory.

``FITS[name].prepare(X, y)`` compiles what is compiled once per data set and returns a function that fits. ``rows`` and
``covariates`` are the largest sizes it is run at. Learners that are not ``timed`` have their time measured in smc.py.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from benchmarks.baselines import fit_rankboost
from benchmarks.learners import fit_xgboost, libauc_linear, nutpie_sampler, nuts_sampler, smc_at_n
from benchmarks.paper_ep import fit_paper_ep
from benchmarks.paper_methods import fit, squared_exponential
from benchmarks.smc_peers import blackjax_smc, particles_smc, pymc_smc
from pymc_pacauc.fitting import fit as arrays_fit
from pymc_pacauc.problem.problem import linear_gaussian_problem


@dataclass(frozen=True)
class Fit:
    prepare: Callable
    rows: int
    covariates: int
    timed: bool = True


def at_once(function):
    """For learners with nothing to prepare."""
    return lambda X, y: partial(function, X, y)


def gp_ep(X, y):
    """As of pm.gp.Latent: by the Cholesky factor of the kernel matrix, with PyMC's jitter."""
    kernel = squared_exponential(X, X, 2.0 * np.sqrt(X.shape[1]))
    return fit(np.linalg.cholesky(kernel + 1e-6 * np.eye(len(X))), y, float(len(y)))


def gp_classifier(X, y):
    return GaussianProcessClassifier(RBF(2.0 * np.sqrt(X.shape[1])), optimizer=None).fit(X, y)


def xgboost_classifier(X, y):
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, tree_method="hist", n_jobs=1).fit(X, y)


def ep_auto(X, y):
    """All pairs, or a subsample where these are many."""
    return arrays_fit(linear_gaussian_problem(X, y, float(len(y))), n_jobs=1)


def ep_all_pairs(X, y):
    return arrays_fit(linear_gaussian_problem(X, y, float(len(y))), pairs="all", n_jobs=1)


MOST = 1_000_000

FITS = {
    "EP-AUC": Fit(at_once(ep_auto), MOST, 320),
    "EP-AUC, all pairs": Fit(at_once(ep_all_pairs), 16_000, 20),
    "SMC-AUC, from EP": Fit(at_once(lambda X, y: smc_at_n(X, y, X[:1], 0)), 10_000, 160),
    "GPEP-AUC": Fit(at_once(gp_ep), 1000, 80),
    "the paper's EP": Fit(at_once(lambda X, y: fit_paper_ep(X, y, float(len(y)))), 1000, 40),
    "LogisticRegression": Fit(at_once(lambda X, y: LogisticRegression(max_iter=2000).fit(X, y)), MOST, 320),
    "LinearSVC": Fit(at_once(lambda X, y: LinearSVC(max_iter=5000).fit(X, y)), MOST, 320),
    "RankBoost, 100 rounds": Fit(at_once(lambda X, y: fit_rankboost(X, y, 100)), MOST, 320),
    "GaussianProcessClassifier": Fit(at_once(gp_classifier), 1000, 80),
    "NUTS, logistic pairs": Fit(nuts_sampler, 1000, 20),
    "pm.sample_smc": Fit(lambda X, y: partial(pymc_smc(X, y, float(len(y)), "IMH"), 0), 1000, 20),
}
if find_spec("nutpie"):
    FITS["NUTS by nutpie, logistic pairs"] = Fit(nutpie_sampler, 1000, 20)
if find_spec("particles"):
    FITS["particles, 10 moves"] = Fit(
        lambda X, y: partial(particles_smc(X, y, float(len(y)), False, 11), 0), 1000, 10, timed=False
    )
if find_spec("blackjax"):
    FITS["blackjax, 10 moves"] = Fit(
        lambda X, y: partial(blackjax_smc(X, y, float(len(y)), "tempered", 10), 0), 500, 10, timed=False
    )
if find_spec("xgboost"):
    FITS["XGBRanker, 100 rounds"] = Fit(at_once(lambda X, y: fit_xgboost(X, y, 100)), MOST, 320)
    FITS["XGBClassifier, 100 rounds"] = Fit(at_once(xgboost_classifier), MOST, 320)
if find_spec("libauc"):
    FITS["LibAUC, linear"] = Fit(at_once(lambda X, y: libauc_linear(X, y, X[:1], 0)), 100_000, 320)


def simulated(n, d, positive=0.3, seed=0):
    """Rows, and labels from a noisy linear score."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=n)
    return X, (score > np.quantile(score, 1 - positive)).astype(int)

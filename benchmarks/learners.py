"""AUC learners with one signature, hyper-parameters chosen on the training rows: ours and their peers.

``learner(X, y, X_new, seed)`` gives the scores of the new rows. ``LEARNERS`` names those whose library is installed;
``SLOW`` are the names of those that take seconds.
"""

from importlib.util import find_spec

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

import pymc_pacauc as pac
from benchmarks import paper_methods
from benchmarks.baselines import fit_bayesian_logit
from benchmarks.gamma_choice import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering

PENALTIES = np.geomspace(1e-4, 1e2, 7)
ROUNDS = (25, 50, 100, 200, 300)


def ep(X, y, X_new, seed, criterion="expected"):
    """Gamma by cross-validation of the expected AUC."""
    rng = np.random.default_rng(seed)
    [found] = paper_methods.ep_auc(X, y, X_new, rng, repeats=1, every=2, criteria=[criterion])
    return found.scores


def ep_by_mean(X, y, X_new, seed):
    """Gamma by cross-validation of the mean score's AUC."""
    return ep(X, y, X_new, seed, "of_mean")


def ep_at_n(X, y, X_new, seed):
    """Gamma = n: nothing is chosen."""
    return X_new @ fit(X, y, float(len(y))).posterior.mean


def smc_at_n(X, y, X_new, seed):
    """1000 particles, started from EP."""
    problem = linear_gaussian_problem(X, y, float(len(y)))
    start = fit(X, y, float(len(y))).posterior
    path, rng = bridge_path(prior_path(problem), start.mean, start.covariance), np.random.default_rng(seed)
    return X_new @ path.finish(run_tempering(path, Settings(particles=1000), rng).population, rng)[0].mean(axis=0)


def gp_ep(X, y, X_new, seed):
    return paper_methods.gpep_auc(X, y, X_new, np.random.default_rng(seed))[0].scores


def bayesian_logit(X, y, X_new, seed):
    return fit_bayesian_logit(X, y).scores(X_new)


def rankboost(X, y, X_new, seed):
    return paper_methods.rankboost(X, y, X_new, np.random.default_rng(seed)).scores


def by_penalty(estimator, X, y, X_new, seed):
    search = GridSearchCV(estimator, {"C": PENALTIES}, scoring="roc_auc", cv=folds(y, seed))
    return search.fit(X, y).decision_function(X_new)


def folds(y, seed):
    return StratifiedKFold(min(5, int(y.sum())), shuffle=True, random_state=seed)


def logistic(X, y, X_new, seed):
    return by_penalty(LogisticRegression(max_iter=2000), X, y, X_new, seed)


def linear_svm(X, y, X_new, seed):
    return by_penalty(LinearSVC(max_iter=5000, random_state=seed), X, y, X_new, seed)


def gp_classifier(X, y, X_new, seed):
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1]))
    return GaussianProcessClassifier(kernel, random_state=seed).fit(X, y).predict_proba(X_new)[:, 1]


def xgboost_pairwise(X, y, X_new, seed):
    """Trees of depth 3 at rate 0.1; the number of rounds by cross-validation."""
    held_out = np.zeros(len(ROUNDS))
    for inside, out in folds(y, seed).split(X, y):
        model = fit_xgboost(X[inside], y[inside], max(ROUNDS), seed)
        scores = [model.predict(X[out], iteration_range=(0, rounds)) for rounds in ROUNDS]
        held_out -= pac.empirical_risk(np.array(scores, dtype=float), y[out])
    return fit_xgboost(X, y, ROUNDS[int(held_out.argmax())], seed).predict(X_new).astype(float)


def fit_xgboost(X, y, rounds, seed=0):
    from xgboost import XGBRanker

    model = XGBRanker(
        objective="rank:pairwise",
        lambdarank_pair_method="mean",  # pairs from the whole ranking; the default looks at its top
        lambdarank_num_pair_per_sample=8,
        n_estimators=rounds,
        tree_method="hist",
        max_depth=3,
        learning_rate=0.1,
        n_jobs=1,
        random_state=seed,
    )
    return model.fit(X, y, qid=np.zeros(len(y), dtype=int))


def libauc_linear(X, y, X_new, seed):
    """LibAUC's AUC-margin loss and optimiser at their defaults on a linear score, 500 batches of 32 + 32 rows."""
    import torch
    from libauc.losses import AUCMLoss
    from libauc.optimizers import PESG

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y == 0)
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
    model, loss = torch.nn.Linear(X.shape[1], 1), AUCMLoss(device="cpu")
    optimizer = PESG(model.parameters(), loss_fn=loss, lr=0.1, verbose=False, device="cpu")
    for _ in range(500):
        rows = np.concatenate([rng.choice(positive, 32), rng.choice(negative, 32)])  # both classes, as LibAUC advises
        optimizer.zero_grad()
        loss(torch.sigmoid(model(inputs[rows])), labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return model(torch.tensor(X_new, dtype=torch.float32))[:, 0].numpy().astype(float)


def nuts(X, y, X_new, seed):
    """NUTS for the logistic pair loss in place of the AUC risk, gamma = n, prior N(0, I)."""
    draws = nuts_sampler(X, y, seed)()
    return X_new @ draws.mean(axis=0)


def nuts_sampler(X, y, seed=0):
    """Compiled; 500 draws after 500 of tuning when called."""
    import pymc as pm

    with surrogate_model(X, y) as model:
        _, step = pm.init_nuts(chains=1, random_seed=seed, progressbar=False)

    def run():
        options = {"chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
        with model:
            idata = pm.sample(500, tune=500, step=step, random_seed=seed, **options)
        return idata.posterior["theta"].values[0]

    return run


def nutpie_sampler(X, y, seed=0):
    """The same by nutpie."""
    import nutpie

    compiled = nutpie.compile_pymc_model(surrogate_model(X, y))

    def run():
        options = {"chains": 1, "cores": 1, "progress_bar": False}
        return nutpie.sample(compiled, draws=500, tune=500, seed=seed, **options).posterior["theta"].values[0]

    return run


def surrogate_model(X, y):
    import pymc as pm

    with pm.Model() as model:
        theta = pm.Normal("theta", size=X.shape[1])
        pac.AUCPotential("auc", X @ theta, y, gamma=float(len(y)), loss="logistic", track_risk=False)
    return model


LEARNERS = {
    "EP-AUC": ep,
    "EP-AUC, gamma by the mean score": ep_by_mean,
    "EP-AUC, gamma = n": ep_at_n,
    "SMC-AUC, gamma = n": smc_at_n,
    "LogisticRegression": logistic,
    "Bayesian logit (Laplace)": bayesian_logit,
    "LinearSVC": linear_svm,
    "RankBoost": rankboost,
}
if find_spec("xgboost"):
    LEARNERS["XGBRanker rank:pairwise"] = xgboost_pairwise
if find_spec("libauc"):
    LEARNERS["LibAUC, linear"] = libauc_linear
SLOW = {"GPEP-AUC": gp_ep, "GaussianProcessClassifier": gp_classifier, "NUTS, logistic pairs": nuts}

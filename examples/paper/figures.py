"""Figures 1 to 3. Each function saves one and returns what the page says about it."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_pacauc as pac

from .cases import SEED, first_rows_of_dna


def figure_1(gamma, path):
    """EP against tempering SMC on Pima, all seven coefficients; the largest difference of means, the ratios of sds."""
    data = pac.datasets.load_pima().standardized()
    X, y = data.X[data.train], data.y[data.train]
    with pm.Model(coords={"covariate": data.feature_names}):
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        options = {"draws": 2000, "chains": 4, "cores": 1, "random_seed": SEED, "progressbar": False}
        idata = pm.sample(step=pac.TemperingSMC(), compute_convergence_checks=False, **options)
    axes = pac.plots.plot_marginals(approx, idata)
    axes[0].figure.suptitle(f"Pima, {y.size} rows, gamma = {gamma:.0f}: EP (line) and tempering SMC (area)")
    save(axes[0].figure, path)
    draws = idata.posterior["theta"].values.reshape(-1, data.d)
    sd = draws.std(axis=0)
    approximate = np.sqrt(np.diagonal(approx.posterior.covariance))
    return np.max(np.abs(approx.posterior.mean - draws.mean(axis=0)) / sd), approximate / sd


def figure_2(outcomes, path):
    """ROC curves: the mean over splits, at each false positive rate."""
    panels = [("pima", "EP-AUC", "RankBoost"), ("colon", "GPEP-AUC", "RankBoost"), ("glass", "EP-AUC", "Logit")]
    panels = [panel for panel in panels if panel[0] in outcomes]
    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 4.0), layout="constrained", squeeze=False)
    for ax, (name, ours, other) in zip(axes[0], panels, strict=True):
        outcome = outcomes[name]
        for method, color, line in ((ours, "black", "-"), (other, "#D55E00", "--")):
            pairs = zip(outcome.results[method], outcome.labels, strict=True)
            curves = [pac.roc(fitted.scores, y)["tpr"] for fitted, y in pairs]
            tpr = np.mean([curve.values for curve in curves], axis=0)
            label = f"{method}: AUC {outcome.auc(method).mean():.3f}"
            ax.plot(curves[0]["fpr"], tpr, color=color, linestyle=line, label=label)
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=":")
        ax.set(title=name, xlabel="false positive rate", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
        ax.legend(loc="lower right", frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("true positive rate")
    save(figure, path)


def figure_3(path):
    """Spike and slab on DNA: coefficients against the spike's variance, and the estimate at the narrowest spike."""
    dna = first_rows_of_dna().standardized()
    X, y = dna.X[dna.train], dna.y[dna.train]
    spikes = pac.regularization_path((X, y), gamma=float(len(y)), p=0.1, n_jobs=1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained", width_ratios=(3, 2))
    pac.plots.plot_regularization_path(spikes, names=dna.feature_names, ax=left)
    last = spikes.isel(v0=0)
    coefficient, included = last["coefficient"].values, last["inclusion_probability"].values >= 0.5
    right.axhline(0.0, color="0.7", linewidth=0.8)
    right.plot(np.flatnonzero(~included), coefficient[~included], ".", color="0.5", markersize=3)
    right.plot(np.flatnonzero(included), coefficient[included], "o", color="#0072B2", fillstyle="none")
    right.set(xlabel="covariate", ylabel="posterior mean", title=f"v0 = {float(last['v0']):.0e}; circled: included")
    save(figure, path)
    auc = 1.0 - pac.empirical_risk(dna.X[~dna.train] @ coefficient, dna.y[~dna.train])
    return int(included.sum()), float(auc), bool(spikes["converged"].all())


def save(figure, path):
    figure.savefig(path, dpi=90)
    plt.close(figure)

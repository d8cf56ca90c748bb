"""Draws from tempering SMC started at a fit, against exact answers: bias of moments and tails, and the time it takes.

Each target has one or two coefficients, so that its marginals are known exactly. A run's estimates of E[theta],
E[theta^2] and of the probabilities beyond the exact 2 % and 98 % points are compared with them; the bias is the mean
over independent runs, its standard error comes from their spread. *Light tails* draws and proposes from Gaussians, as
fitted; *heavy tails*, the package's own, from t distributions around them.

The starts are those of people: EP's fit, and, for a prior that EP does not take, a mean and a covariance that is 20 %
too small.

    python -m benchmarks.starts [--runs 200] [--particles 1000] [--speed-runs 20]
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time
from unittest import mock

import numpy as np
from scipy import stats

from pymc_pacauc import datasets, fitting
from pymc_pacauc.comparison.risk import linear_risk
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.coordinates import Fit
from pymc_pacauc.smc.paths import Path, bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, TemperingWarning, run_tempering
from tests.marginals import Marginal, exact_marginal, exact_single
from tests.paths import ModelPath

TAIL = 0.02
PRIOR_MEAN, PRIOR_COVARIANCE = np.array([0.8, -0.5]), np.array([[2.0, 1.2], [1.2, 1.0]])

# -- targets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """A target, from the prior and from a fit, with its exact marginals."""

    from_prior: Path
    from_fit: Path
    marginals: list[Marginal]


def started(problem):
    fit = fitting.fit(problem, n_jobs=1)
    path = prior_path(problem)
    return path, bridge_path(path, fit.posterior.mean, fit.posterior.covariance)


def noisy_labels(rng, scores):
    return (scores + rng.standard_normal(len(scores)) > 0).astype(int)


def gaussian_marginals(X, y, gamma, mean, covariance):
    def marginal(k):
        slope = covariance[0, 1] / covariance[k, k]
        sd = np.sqrt(covariance[1 - k, 1 - k] - slope * covariance[0, 1])
        prior = stats.norm(mean[k], np.sqrt(covariance[k, k]))
        return exact_marginal(
            X,
            y,
            gamma,
            k,
            prior_pdf=prior.pdf,
            other_cdf=lambda s, t: stats.norm.cdf((s - mean[1 - k] - slope * (t - mean[k])) / sd),
            low=prior.ppf(1e-14),
            high=prior.isf(1e-14),
        )

    return [marginal(0), marginal(1)]


def prior_mean(seed, gamma=20.0):
    """A prior mean that ranks: the length of theta matters, and EP's standard deviations are 7 to 25 % low."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((16, 2))
    y = noisy_labels(rng, X[:, 0])
    problem = linear_gaussian_problem(X, y, gamma, prior_mean=PRIOR_MEAN, prior_covariance=PRIOR_COVARIANCE)
    return Case(*started(problem), gaussian_marginals(X, y, gamma, PRIOR_MEAN, PRIOR_COVARIANCE))


def one_coefficient(seed=0, gamma=20.0):
    rng = np.random.default_rng(seed)
    x, offset = rng.standard_normal(16), 0.7 * rng.standard_normal(16)
    y = noisy_labels(rng, x + offset)
    prior = stats.norm(0.8, np.sqrt(2.0))
    problem = linear_gaussian_problem(x[:, None], y, gamma, prior_mean=0.8, prior_covariance=2.0, offset=offset)
    exact = exact_single(x, y, gamma, prior_pdf=prior.pdf, low=-11.0, high=12.0, offset=offset)
    return Case(*started(problem), [exact])


def laplace_prior(seed=0, gamma=20.0):
    """Exponential tails, a target given by functions, and a user's start."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 2))
    y = noisy_labels(rng, X[:, 0])
    prior = stats.laplace()
    marginals = [
        exact_marginal(
            X, y, gamma, k, prior_pdf=prior.pdf, other_cdf=lambda s, t: prior.cdf(s), low=-30, high=30, cells=12_000
        )
        for k in (0, 1)
    ]
    path = ModelPath(
        prior_logp=lambda theta: -np.abs(theta).sum(axis=1) - 2 * np.log(2.0),
        risk=lambda theta: linear_risk(theta, X, y),
        prior_draw=lambda size, draw: draw.laplace(size=(size, 2)),
        gamma=gamma,
        dimension=2,
    )
    mean = np.array([marginal.mean for marginal in marginals])
    return Case(path, bridge_path(path, mean, 0.8 * np.diag([marginal.sd**2 for marginal in marginals])), marginals)


def integer_covariates(seed=0, gamma=20.0):
    """Few distinct rows: the risk has a handful of values, and the posterior of the direction reaches far."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (30, 2)).astype(float)
    y = noisy_labels(rng, X[:, 0])
    return Case(*started(linear_gaussian_problem(X, y, gamma)), gaussian_marginals(X, y, gamma, np.zeros(2), np.eye(2)))


CASES = {
    "prior mean, data 0": lambda: prior_mean(0),
    "prior mean, data 1": lambda: prior_mean(1),
    "prior mean, data 2": lambda: prior_mean(2),
    "one coefficient": one_coefficient,
    "Laplace prior": laplace_prior,
    "integer covariates": integer_covariates,
}

# -- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bias:
    """Mean error over runs and its standard error, both of shape (coefficients, 4).

    The errors are of E[theta] in posterior standard deviations, and of E[theta^2] and the two tails' probabilities as
    shares of the exact value.
    """

    estimate: np.ndarray
    error: np.ndarray
    moves: float
    log_evidence: np.ndarray
    claimed: float

    @property
    def worst(self):
        """The largest bias in standard errors."""
        return float(np.abs(self.estimate / self.error).max())


def errors(theta, marginals):
    rows = []
    for values, exact in zip(theta.T, marginals, strict=True):
        low, high = exact.quantile(TAIL), exact.quantile(1 - TAIL)
        rows.append(
            [
                (values.mean() - exact.mean) / exact.sd,
                np.mean(values**2) / exact.second_moment - 1,
                np.mean(values < low) / TAIL - 1,
                np.mean(values > high) / TAIL - 1,
            ]
        )
    return np.array(rows)


def bias(path, marginals, runs, first_seed=0, states="population", **settings):
    """Bias of the draws of ``runs`` independent runs, or with ``states="visited"`` of all states that they kept."""
    found, moves, log_evidence, variance = [], [], [], []
    for seed in range(first_seed, first_seed + runs):
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TemperingWarning)  # counted elsewhere
            state = run_tempering(path, Settings(**settings), rng)
        found.append(errors(path.finish(getattr(state, states), rng)[0], marginals))
        moves.append(sum(stage.moves for stage in state.stages))
        log_evidence.append(state.log_evidence)
        variance.append(state.stages[-1].log_evidence_variance)
    found = np.array(found)
    return Bias(
        found.mean(axis=0),
        found.std(axis=0, ddof=1) / np.sqrt(runs),
        float(np.mean(moves)),
        np.array(log_evidence),
        float(np.sqrt(np.mean(variance))),
    )


@contextmanager
def light_tails():
    """Gaussians where the package has t distributions: so many degrees of freedom that there is no difference."""
    many = property(lambda fit: 1e9, lambda fit, value: vars(fit).update(degrees=value))
    with mock.patch.object(Fit, "degrees", many, create=True):
        yield


# -- speed -----------------------------------------------------------------------------------------------------------


def pima():
    data = datasets.load_pima().standardized()
    return linear_gaussian_problem(data.X[:200], data.y[:200], 50.0)


def simulated(n=400, d=50):
    rng = np.random.default_rng(50)
    X = rng.standard_normal((n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(1.1 - X @ (0.3 * rng.standard_normal(d))))).astype(int)
    return linear_gaussian_problem(X, y, float(n))


def timed(path, seed, particles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        began = process_time()
        state = run_tempering(path, Settings(particles=particles), np.random.default_rng(seed))
    return process_time() - began, sum(stage.moves for stage in state.stages), state.log_evidence


def speed(title, problem, runs, particles):
    """Light and heavy tails take turns, so that both see the same machine."""
    path = started(problem)[1]
    timed(path, 0, particles)  # compiles
    light, heavy = [], []
    for seed in range(runs):
        with light_tails():
            light.append(timed(path, seed, particles))
        heavy.append(timed(path, seed, particles))
    for tails, record in (("light", light), ("heavy", heavy)):
        seconds, moves, log_evidence = (np.array(column) for column in zip(*record, strict=True))
        print(
            f"| {title} | {tails} | {1e3 * np.median(seconds):.1f} | {moves.mean():.1f} | "
            f"{log_evidence.mean():.3f} ({log_evidence.std(ddof=1):.3f}) |",
            flush=True,
        )


# -- printing --------------------------------------------------------------------------------------------------------


def row(title, begin, found):
    """The coefficient whose second moment is worst."""
    k = int(np.argmax(np.abs(found.estimate[:, 1])))
    cells = " | ".join(f"{a:+.3f} ± {b:.3f}" for a, b in zip(found.estimate[k], found.error[k], strict=True))
    spread = found.log_evidence.std(ddof=1)
    print(
        f"| {title} | {begin} | {cells} | {found.worst:.1f} | {found.moves:.1f} | {spread:.3f} / {found.claimed:.3f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--particles", type=int, default=1000)
    parser.add_argument("--speed-runs", type=int, default=20)
    arguments = parser.parse_args()
    settings = {"particles": arguments.particles}
    print(f"\n## Bias of {arguments.runs} runs of {arguments.particles} particles\n")
    print(
        "Bias ± standard error of E[theta] in posterior standard deviations and, relative to the exact value, of "
        "E[theta²] and the two 2 % tails, for the coefficient whose E[theta²] is worst; the largest bias of any "
        "coefficient and quantity in standard errors; moves of a run; standard deviation of log Z over the runs / as "
        "the runs claim.\n"
    )
    print("| target | start | E[theta] | E[theta²] | lower tail | upper tail | worst | moves | sd of log Z / claimed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for title, make in CASES.items():
        case = make()
        with light_tails():
            row(title, "a fit, light tails", bias(case.from_fit, case.marginals, arguments.runs, **settings))
        row(title, "a fit", bias(case.from_fit, case.marginals, arguments.runs, **settings))
        row(title, "the prior", bias(case.from_prior, case.marginals, arguments.runs, **settings))
    print(f"\n## Time of a run from EP, {arguments.particles} particles\n")
    print("| target | tails | CPU ms | moves | log Z (sd) |")
    print("|---|---|---:|---:|---:|")
    speed("Pima, 200 rows, gamma = 50", pima(), arguments.speed_runs, arguments.particles)
    speed("simulated, n = gamma = 400, d = 50", simulated(), arguments.speed_runs, arguments.particles)


if __name__ == "__main__":
    main()

"""Tempering SMC against its peers: the same targets, the same gamma, one run.

Work-normalised variance (WNV): variance over seeds of the posterior-mean estimate, averaged over coefficients, times
the CPU seconds of a run. A method with half the WNV reaches the same accuracy in half the time, whatever its settings.

Targets: Pima (n = 532, d = 7, gamma = n, prior N(0, I)) and a simulated n = 3000, d = 50, gamma = n. Reference
values come from ten times more particles started from EP; an exact oracle checks the engine in the tests.

Peers are given every advantage that is easy to give: compilation is not timed, ``pm.sample_smc`` uses this package's
fast risk Op, ``particles`` its vectorised risk. blackjax needs the risk in JAX, by comparing all pairs. Peers that are
not installed are left out.

python benchmarks/smc.py                    # Pima and d = 50, about 15 minutes on one core
python benchmarks/smc.py --only pima --seeds 10
python benchmarks/smc.py --large            # DNA (d = 180) and a Gaussian process (500 latent scores): log Z over seeds
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import time
import warnings
from importlib.util import find_spec

import numpy as np

from pymc_pacauc.ep.gaussian import fit_ep
from pymc_pacauc.problem import linear_gaussian_problem
from pymc_pacauc.risk import LinearRisk
from pymc_pacauc.smc import Settings, bridge_path, prior_path, run_tempering

PARTICLES = 1000
PAPER = "the paper's (1 random-walk move)"


def pima():
    from pymc_pacauc import load_pima

    data = load_pima()
    return standardised(data.X), data.y, float(data.n)


def simulated(n=3000, d=50):
    rng = np.random.default_rng(50)
    X, theta = rng.standard_normal((n, d)), 0.3 * rng.standard_normal(d)
    y = rng.random(n) < 1 / (1 + np.exp(1.1 - X @ theta))
    return X, y.astype(int), float(n)


def dna():
    from pymc_pacauc import load_dna

    data = load_dna()
    keep = data.X.std(axis=0) > 0
    return standardised(data.X[:, keep]), data.y, float(data.n)


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def gaussian_process(n=500):
    """Latent scores with a squared-exponential covariance, as in the paper's section 4."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 4))
    f = 2 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + X[:, 2]
    y = rng.random(n) < 1 / (1 + np.exp(1 - 1.5 * f))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1)) + 1e-6 * np.eye(n)
    return linear_gaussian_problem(np.eye(n), y, float(n), prior_covariance=K)


# -- ours ------------------------------------------------------------------------------------------------------------


def from_prior(problem, **settings):
    def run(seed):
        path, rng = prior_path(problem), np.random.default_rng(seed)
        state = run_tempering(path, Settings(**{"particles": PARTICLES, **settings}), rng)
        return path.finish(state.population, rng)[0].mean(axis=0), state.log_evidence

    return run


def from_ep(problem, particles=PARTICLES, **settings):
    def run(seed):
        rng = np.random.default_rng(seed)
        fit = fit_ep(problem, threads=1)
        path = bridge_path(prior_path(problem), fit.posterior.mean, fit.posterior.covariance)
        state = run_tempering(path, Settings(particles=particles, **settings), rng)
        return path.finish(state.population, rng)[0].mean(axis=0), state.log_evidence

    return run


def paper(problem):
    """Algorithm 1 to the letter: one random-walk move per stage."""
    return from_prior(problem, move="random_walk", max_moves=1)


# -- peers -----------------------------------------------------------------------------------------------------------


def pymc_smc(X, y, gamma, kernel_name):
    import pymc as pm
    from pymc.smc.kernels import IMH, MH

    from pymc_pacauc.model.potential import AUCPotential

    with pm.Model():
        theta = pm.Normal("theta", size=X.shape[1])
        AUCPotential("auc", X @ theta, y, gamma=gamma, track_risk=False)

        kernel = {"IMH": IMH, "MH": MH}[kernel_name](draws=PARTICLES)

    def run(seed):
        kernel.initialize(None, np.random.default_rng(seed))  # draws and evaluates the first particles: not timed
        began = time.process_time()
        while kernel.beta < 1:
            kernel.update_beta_and_weights()
            kernel.step()
        run.cpu = time.process_time() - began
        return kernel.tempered_posterior.mean(axis=0), float(kernel.log_marginal_likelihood)

    return run


def particles_smc(X, y, gamma, wastefree, length):
    import particles
    from particles import distributions as dists
    from particles import smc_samplers as ssp

    d = X.shape[1]
    risk = LinearRisk(np.ascontiguousarray(X), linear_gaussian_problem(X, y, 1.0).pairs)

    class Target(ssp.StaticModel):
        def loglik(self, theta, t=None):
            return -gamma * risk(np.ascontiguousarray(theta["theta"]))

    prior = dists.StructDist({"theta": dists.MvNormal(loc=np.zeros(d), cov=np.eye(d))})

    def run(seed):
        np.random.seed(seed)  # noqa: NPY002 (the library draws from NumPy's global generator)
        model = ssp.AdaptiveTempering(Target(data=np.zeros(1), prior=prior), wastefree=wastefree, len_chain=length)
        algorithm = particles.SMC(fk=model, N=PARTICLES // length if wastefree else PARTICLES)
        algorithm.run()
        return algorithm.W @ algorithm.X.theta["theta"], float(algorithm.logLt)

    return run


def blackjax_smc(X, y, gamma, moves=10):
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.mcmc import random_walk
    from blackjax.smc import resampling

    d = X.shape[1]
    positive, negative = jnp.asarray(X[y > 0]), jnp.asarray(X[y == 0])

    def risk(theta):
        above = (negative @ theta)[None] - (positive @ theta)[:, None]
        return jnp.mean((above > 0) + 0.5 * (above == 0))

    step = random_walk.build_additive_step()

    def move(key, state, logdensity, factor):
        return step(key, state, logdensity, lambda k, x: factor @ jax.random.normal(k, x.shape))

    kernel = blackjax.smc.adaptive_tempered.build_kernel(
        lambda theta: -0.5 * theta @ theta,
        lambda theta: -gamma * risk(theta),
        move,
        random_walk.init,
        resampling.systematic,
        0.5,
    )
    stage = jax.jit(lambda key, state, factor: kernel(key, state, moves, {"factor": factor[None]}))

    def run(seed):
        key = jax.random.key(seed)
        key, first = jax.random.split(key)
        state = blackjax.smc.tempered.init(jax.random.normal(first, (PARTICLES, d)))
        log_evidence = 0.0
        while float(state.tempering_param) < 1.0:
            key, now = jax.random.split(key)
            factor = jnp.linalg.cholesky(2.38**2 / d * jnp.cov(state.particles.T) + 1e-9 * jnp.eye(d))
            state, info = stage(now, state, factor)
            log_evidence += float(info.log_likelihood_increment)
        return np.asarray(state.particles.mean(axis=0)), log_evidence

    run(0)  # compiles
    return run


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(methods, seeds):
    """Interleaved: every method runs a seed before any runs the next, so that noise of the machine hits all alike."""
    record = {name: [] for name in methods}
    for seed in range(max(count for _, count in methods.values()) if seeds is None else seeds):
        for name, (run, count) in methods.items():
            if seed >= count:
                continue
            run.cpu = None
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mean, log_evidence = run(seed)
            cpu = time.process_time() - began if run.cpu is None else run.cpu
            record[name].append((mean, log_evidence, cpu))
    return record


def report(record, ours):
    rows = {}
    for name, results in record.items():
        means = np.array([mean for mean, _, _ in results])
        log_evidence = np.array([value for _, value, _ in results])
        cpu = np.mean([cpu for _, _, cpu in results])
        variance = means.var(axis=0, ddof=1).mean()
        rows[name] = (len(results), cpu, log_evidence.mean(), log_evidence.std(ddof=1), variance, variance * cpu)
    best = min(row[-1] for name, row in rows.items() if name not in ours and name != PAPER)
    print(f"{'':42} seeds  CPU s   log Z     (sd)   var mean      WNV   best peer / this")
    for name, (count, cpu, value, spread, variance, wnv) in rows.items():
        ratio = f"{best / wnv:12.1f}" if name in ours else ""
        print(
            f"{name:42} {count:5d} {cpu:6.2f} {value:9.2f} {spread:7.3f} {variance:10.2e} {wnv:10.2e} {ratio}",
            flush=True,
        )


def compare(name, X, y, gamma, seeds, peer_seeds, with_blackjax):
    problem = linear_gaussian_problem(X, y, gamma)
    prior_path(problem).risk(np.zeros((2, X.shape[1])))  # compiles
    reference = from_ep(problem, particles=10 * PARTICLES)(12345)
    print(f"\n{name}: n = {len(y)}, d = {X.shape[1]}, gamma = {gamma:g}; reference log Z = {reference[1]:.3f}")
    ours = {
        "ours, from the prior": (from_prior(problem), seeds),
        "ours, waste-free (10 000, P = 20)": (from_prior(problem, particles=10_000, waste_free=20), max(seeds // 2, 2)),
        "ours, from EP (fit included)": (from_ep(problem), seeds),
        "ours, from EP, 10 000 particles": (from_ep(problem, 10_000), seeds),
        "ours, from EP, waste-free (10 000, P = 5)": (from_ep(problem, 10_000, waste_free=5), seeds),
    }
    methods = {**ours, PAPER: (paper(problem), peer_seeds)}
    methods["pm.sample_smc IMH"] = (pymc_smc(X, y, gamma, "IMH"), peer_seeds)
    methods["pm.sample_smc MH"] = (pymc_smc(X, y, gamma, "MH"), max(peer_seeds // 2, 2))
    if find_spec("particles"):
        methods["particles, 10 moves"] = (particles_smc(X, y, gamma, False, 11), max(peer_seeds // 2, 2))
        methods["particles, waste-free P = 10"] = (particles_smc(X, y, gamma, True, 10), peer_seeds)
    if find_spec("blackjax") and with_blackjax:
        methods["blackjax, 10 moves"] = (blackjax_smc(X, y, gamma), max(peer_seeds // 3, 2))
    report(measure(methods, seeds=None), ours)


def reproducibility(name, problem, seeds):
    print(f"\n{name}: n = {problem.n}, d = {problem.d}, gamma = {problem.gamma:g}; EP log Z = ", end="")
    fit = fit_ep(problem)
    print(f"{fit.log_evidence:.2f}")
    bridge = bridge_path(prior_path(problem), fit.posterior.mean, fit.posterior.covariance)
    for label, path in (("from the prior", prior_path(problem)), ("from EP", bridge)):
        for seed in range(seeds):
            began = time.process_time()
            state = run_tempering(path, Settings(particles=PARTICLES), np.random.default_rng(seed))
            last = state.stages[-1]
            lowest = min(stage.acceptance_rate for stage in state.stages[1:])
            print(
                f"  {label:15} seed {seed}: log Z = {last.log_evidence:.2f} +- {last.log_evidence_variance**0.5:.2f}, "
                f"{len(state.stages) - 1} stages, {sum(s.moves for s in state.stages)} moves ({state.move!r}), lowest "
                f"acceptance {lowest:.2f}, {time.process_time() - began:.1f} CPU s",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["pima", "simulated"])
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--peer-seeds", type=int, default=None)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    if arguments.large:
        reproducibility("DNA", linear_gaussian_problem(*dna()), arguments.seeds or 3)
        reproducibility("Gaussian process", gaussian_process(), arguments.seeds or 3)
        return
    if arguments.only in (None, "pima"):
        compare("Pima", *pima(), arguments.seeds or 20, arguments.peer_seeds or 10, True)
    if arguments.only in (None, "simulated"):
        compare("Simulated", *simulated(), arguments.seeds or 6, arguments.peer_seeds or 4, False)


if __name__ == "__main__":
    main()

"""Other libraries' SMC samplers on the AUC posterior of a linear score with prior N(0, I).

Each function compiles and returns ``run(seed)``, which gives the posterior mean and log evidence of one run of
``PARTICLES`` particles. Peers are given every advantage that is easy to give: ``pm.sample_smc`` uses this package's
fast risk in numba's mode, ``particles`` its vectorised risk, blackjax its risk in JAX; compilation is not timed.
"""

import numpy as np

from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.problem.problem import linear_gaussian_problem

PARTICLES = 1000


def pymc_smc(X, y, gamma, kernel_name):
    """The loop of ``pm.sample_smc``; it would compile a sampler of the prior at every start, so draws are given."""
    import pymc as pm
    from pymc.smc.kernels import IMH, MH

    from pymc_pacauc.model.potential import AUCPotential

    half = len(y) // 2
    with pm.Model():
        theta = pm.Normal("theta", size=X.shape[1])
        scores = pm.math.concatenate([X[:half] @ theta, X[half:] @ theta])  # contiguous, as PyMC 5's numba mode asks
        AUCPotential("auc", scores, y, gamma=gamma, track_risk=False)
        kernel = {"IMH": IMH, "MH": MH}[kernel_name](draws=PARTICLES, compile_kwargs={"mode": "NUMBA"})

    kernel.set_rng = lambda rng: setattr(kernel, "rng", rng)  # it would copy its functions, and compile them again

    def start(seed):
        rng = np.random.default_rng(seed)
        kernel.initialize({"theta": rng.standard_normal((PARTICLES, X.shape[1]))}, rng)

    def run(seed):
        start(seed)
        while kernel.beta < 1:
            kernel.update_beta_and_weights()
            kernel.step()
        return kernel.tempered_posterior.mean(axis=0), float(kernel.log_marginal_likelihood)

    start(0)  # compiles
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

    from pymc_pacauc.model.jax_dispatch import jax_funcify_auc_risk
    from pymc_pacauc.model.op import AUCRisk

    d, design, labels = X.shape[1], jnp.asarray(X), jnp.asarray(y)
    risk = jax_funcify_auc_risk(AUCRisk(ties="half"))
    step = random_walk.build_additive_step()

    def move(key, state, logdensity, factor):
        return step(key, state, logdensity, lambda k, x: factor @ jax.random.normal(k, x.shape))

    kernel = blackjax.smc.adaptive_tempered.build_kernel(
        lambda theta: -0.5 * theta @ theta,
        lambda theta: -gamma * risk(design @ theta, labels),
        move,
        random_walk.init,
        resampling.systematic,
        0.5,
    )
    stage = jax.jit(lambda key, state, factor: kernel(key, state, moves, {"factor": factor[None]}))

    def run(seed, stages=None):
        key = jax.random.key(seed)
        key, first = jax.random.split(key)
        state = blackjax.smc.tempered.init(jax.random.normal(first, (PARTICLES, d)))
        log_evidence = 0.0
        while float(state.tempering_param) < 1.0 and stages != 0:
            key, now = jax.random.split(key)
            factor = jnp.linalg.cholesky(2.38**2 / d * jnp.cov(state.particles.T) + 1e-9 * jnp.eye(d))
            state, info = stage(now, state, factor)
            log_evidence += float(info.log_likelihood_increment)
            stages = None if stages is None else stages - 1
        return np.asarray(state.particles.mean(axis=0)), log_evidence

    run(0, stages=1)  # compiles
    return run

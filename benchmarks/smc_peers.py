"""Other libraries' SMC samplers on the AUC posterior of a linear score with prior N(0, I).

Each function compiles and returns ``run(seed)``, which gives the posterior mean, variances and log evidence of one run
of ``PARTICLES`` particles. Peers are given every advantage that is easy to give: ``pm.sample_smc`` uses this package's
fast risk in numba's mode, ``particles`` and blackjax its risk of all particles at once; compilation is not timed.
"""

import numpy as np

from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.problem.problem import linear_gaussian_problem

PARTICLES = 1000


def moments(theta, weights=None):
    """Mean and variance of each coefficient."""
    mean = np.average(theta, axis=0, weights=weights)
    return mean, np.average((theta - mean) ** 2, axis=0, weights=weights)


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
        return *moments(kernel.tempered_posterior), float(kernel.log_marginal_likelihood)

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
        return *moments(algorithm.X.theta["theta"], algorithm.W), float(algorithm.logLt)

    return run


def blackjax_smc(X, y, gamma, scheme, length):
    """Adaptive tempering, waste-free or persistent sampling, with ``length`` moves (states of a chain, if waste-free).

    Random walks of 2.38^2 / d times the particles' covariance, as its documentation tunes them; JAX calls the risk's
    kernel for all particles at once, a tenth of the time of its own sort.
    """
    from functools import partial

    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.mcmc import random_walk
    from blackjax.smc import resampling
    from blackjax.smc.waste_free import waste_free_smc

    d, most = X.shape[1], 100  # stages, room for which persistent sampling asks
    risk = LinearRisk(np.ascontiguousarray(X), linear_gaussian_problem(X, y, 1.0).pairs)
    step = random_walk.build_additive_step()

    def of_all(theta):
        return risk(np.ascontiguousarray(np.atleast_2d(theta))).reshape(np.shape(theta)[:-1])

    def log_likelihood(theta):
        number = jax.ShapeDtypeStruct((), theta.dtype)
        return -gamma * jax.pure_callback(of_all, number, theta, vmap_method="expand_dims")

    def move(key, state, logdensity, factor):
        return step(key, state, logdensity, lambda k, x: factor @ jax.random.normal(k, x.shape))

    persistent = scheme == "persistent"
    module = blackjax.smc.adaptive_persistent_sampling if persistent else blackjax.smc.adaptive_tempered
    kernel = module.build_kernel(
        lambda theta: -0.5 * theta @ theta - 0.5 * d * jnp.log(2.0 * jnp.pi),
        log_likelihood,
        move,
        random_walk.init,
        resampling.systematic,
        3.0 if persistent else 0.5,  # the ESS to keep: its defaults
        **({"update_strategy": waste_free_smc(PARTICLES, length)} if scheme == "waste-free" else {}),
    )
    moves = None if scheme == "waste-free" else length

    @jax.jit
    def stage(key, state):
        factor = jnp.linalg.cholesky(2.38**2 / d * jnp.cov(state.particles.T) + 1e-9 * jnp.eye(d))
        return kernel(key, state, moves, {"factor": factor[None]})

    init = partial(module.init, loglikelihood_fn=log_likelihood, n_schedule=most) if persistent else module.init

    def run(seed, stages=most):
        key, first = jax.random.split(jax.random.key(seed))
        state, log_evidence = init(jax.random.normal(first, (PARTICLES, d))), 0.0
        for _ in range(stages):
            key, now = jax.random.split(key)
            state, info = stage(now, state)
            if not persistent:
                log_evidence += float(info.log_likelihood_increment)
            if float(state.tempering_param) >= 1.0:
                break
        if not persistent:
            return *moments(np.asarray(state.particles), np.asarray(state.weights)), log_evidence
        theta = np.asarray(state.persistent_particles).reshape(-1, d)
        return *moments(theta, np.ravel(state.persistent_weights)), float(state.log_Z)

    run(0, stages=1)  # compiles
    return run

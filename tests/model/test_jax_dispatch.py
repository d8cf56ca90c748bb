"""The Ops on JAX."""

import subprocess
import sys
import textwrap

import pytest


def test_jax():
    pytest.importorskip("jax")
    code = """
        import sys
        import numpy as np, pymc as pm, pytensor, pytensor.tensor as pt
        import pymc_pacauc as pac
        from pymc_pacauc.model.potential import compared_labels
        from pymc_pacauc.comparison.pairs import bipartite
        from pymc_pacauc.comparison.surrogate import surrogate_risk
        s = pt.dvector()
        pytensor.function([s], pac.auc_risk(s, [0, 1]), mode="FAST_COMPILE")
        assert "jax" not in sys.modules  # its threads do not mix with forks
        from pymc.sampling.jax import get_jaxified_logp
        assert "pymc_pacauc.model.jax_dispatch" not in sys.modules
        rng = np.random.default_rng(0)
        y, S = rng.random(60) < 0.3, rng.standard_normal((4, 60)).round(1)
        S[3, :2] = np.inf, -np.inf
        m = pt.dmatrix()
        for ties in ("half", "strict"):
            f = pytensor.function([m], pac.auc_risk(m, y, ties=ties), mode="JAX")
            np.testing.assert_allclose(f(S), pac.empirical_risk(S, y, ties=ties), rtol=1e-12)
        v = compared_labels(y).surrogate(s)
        f = pytensor.function([s], [v, pytensor.grad(v, s)], mode="JAX")
        x = S[0] + 1e-3 * rng.standard_normal(60)
        for found, expected in zip(f(x), surrogate_risk(x, bipartite(y))):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
        with pm.Model() as model:  # as nuts_sampler="numpyro" compiles it
            theta = pm.Normal("theta", size=60)
            pac.AUCPotential("auc", theta, y, gamma=10.0, loss="logistic")
        found = get_jaxified_logp(model)([x])
        np.testing.assert_allclose(found, model.compile_logp(mode="FAST_COMPILE")({"theta": x}), rtol=1e-12)
        with pm.Model() as model:  # other comparisons are computed on the host, where JAX cannot differentiate
            theta = pm.Normal("theta", size=60)
            pac.AUCPotential("auc", theta, y, gamma=10.0, loss="logistic", strata=np.arange(60) % 3, track_risk=False)
        import jax
        value, slope = jax.value_and_grad(lambda x: get_jaxified_logp(model)([x]))(x)
        np.testing.assert_allclose(value, model.compile_logp(mode="FAST_COMPILE")({"theta": x}), rtol=1e-12)
        expected = model.compile_dlogp(mode="FAST_COMPILE")({"theta": x})
        np.testing.assert_allclose(slope, expected, rtol=1e-10, atol=1e-12)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

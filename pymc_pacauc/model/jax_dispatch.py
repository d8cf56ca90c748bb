"""The Ops on JAX; imported when a graph is first compiled for it, see ``RegisterWithJax``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch import jax_funcify

from pymc_pacauc.model.op import TWO_CLASSES, AUCRisk, SurrogateRisk
from pymc_pacauc.numerics import NUMBERS_AT_ONCE


@jax_funcify.register(AUCRisk)
def on_host(op, **kwargs):
    """Call ``op.evaluate`` on the host: the number of pairs and blocks depends on the values of the arrays."""

    def evaluate(*inputs):
        found = tuple(np.asarray(each) for each in op.evaluate(*(np.asarray(each) for each in inputs)))
        return found if op.gradient else found[0]

    @jax.custom_jvp
    def comparison(scores, *arrays):
        number = jax.ShapeDtypeStruct((), scores.dtype)
        like = (number, jax.ShapeDtypeStruct(scores.shape, scores.dtype)) if op.gradient else number
        return jax.pure_callback(evaluate, like, scores, *arrays, vmap_method="sequential")

    @comparison.defjvp
    def derivative(primals, tangents):
        found = comparison(*primals)
        return found, (found[1] @ tangents[0], jnp.zeros_like(found[1])) if op.gradient else jnp.zeros_like(found)

    return comparison


@jax_funcify.register(SurrogateRisk)
def jax_funcify_surrogate_risk(op, **kwargs):
    if op.kind != TWO_CLASSES:
        return on_host(op)

    def surrogate_risk(scores, labels):
        positive = labels > 0
        rows_at_once = max(1, NUMBERS_AT_ONCE // scores.size)

        @jax.checkpoint
        def row(s, values):
            return jnp.sum(jnp.where(positive, 0.0, jax.nn.softplus(values - s) / jnp.log(2.0)))

        def mean_loss(values):
            rows = jax.lax.map(lambda s: row(s, values), values, batch_size=rows_at_once)
            return jnp.sum(jnp.where(positive, rows, 0.0)) / (jnp.sum(positive) * jnp.sum(~positive))

        return jax.value_and_grad(mean_loss)(scores)

    return surrogate_risk

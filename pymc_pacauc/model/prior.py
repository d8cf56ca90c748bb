"""Read the priors of a model's variables: Gaussian, spike and slab, mixtures, and other independent densities.

*Gaussian* (:class:`GaussianPriorReader`). The parameters of a Normal or an MvNormal are evaluated, so that no
covariance is inverted (kernel matrices are often nearly singular); its mean may be affine in other such variables, as
in centred hierarchies. Of others (random walks, zero-sum and conditional autoregressive variables) the gradient of the
log density at zero and at the unit vectors gives mean and precision, and random probes verify that it is Gaussian.

*Spike and slab* (:func:`SpikeSlab`; the paper's section 2.4). With v0 > 0 the variable is the marginal normal mixture,
one continuous variable with a density. With v0 = 0 the spike is a point mass, which has no density; theta = z * b with
a slab b ~ N(0, v1) and an indicator z = 1{latent < quantile of p} of a Gaussian latent variable. So every free variable
is continuous, prior draws are exact, and any sampler of continuous variables can change z by moving its latent.
:func:`sparse_variables` recognises both forms in a model's graph, so that copies of a model (``pm.do``, frozen data)
keep them.

*Other independent priors* (:func:`density_variables`: Laplace, Student-t, half-normal, horseshoe given its global
scale) are tabulated from their log density; a new PyMC distribution needs no code here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import LT
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.type import TensorType
from scipy import linalg
from scipy.special import ndtr, ndtri

from pymc_pacauc.model.auc_term import names_of, refuse
from pymc_pacauc.model.graph import (
    FlatVariables,
    Unreadable,
    affine_map,
    evaluate,
    is_known,
    is_random,
    read_affine,
    shape_now,
)
from pymc_pacauc.model.results import opened
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Table, default_inclusion_probability, tabulate
from pymc_pacauc.problem.scores import GaussianPrior
from pymc_pacauc.smc.coordinates import positive_factor

Tables = tuple[list[Table], NDArray[np.intp]]  # of densities, and which of them each coefficient has


class GaussianPriorReader:
    """Mean and Cholesky factor (or standard deviations) of some variables of a model, read anew at each call.

    Each variable is Gaussian given those that it depends on, with a mean that is affine in them.
    """

    def __init__(self, model: pm.Model, layout: FlatVariables):
        self._layout = layout
        rvs = [model.values_to_rvs[value] for value in layout.values]
        above = [set(rvs) & set(ancestors(rv.owner.inputs)) for rv in rvs]
        order = sorted(range(len(rvs)), key=lambda i: len(above[i]))  # each after those that it depends on
        self._conditionals = []
        for i in order:
            parents = [k for k, other in enumerate(rvs) if other in above[i]]
            given, part = [rvs[k] for k in parents], layout.part([*parents, i])
            as_written = all(model.rvs_to_transforms[v] is None for v in (rvs[i], *given))
            written = as_written and is_normal(model, rvs[i])
            read = _written(rvs[i], given, part) if written else _by_gradient(model, rvs[i], part)
            self._conditionals.append((layout.places([i]), layout.places(parents), read))

    def __call__(self) -> tuple[FloatArray, FloatArray]:
        d = self._layout.dimension
        found = [(places, parents, *read()) for places, parents, read in self._conditionals]
        mean = np.zeros(d)
        if all(own.ndim == 1 and not parents.size for _, parents, _, _, own in found):
            factor = np.empty(d)
            for places, _, offset, _, own in found:
                mean[places], factor[places] = offset, own
            return mean, factor
        factor = np.zeros((d, d))
        for places, parents, offset, slope, own in found:
            mean[places] = offset + mean[parents] @ slope
            factor[places] = slope.T @ factor[parents]
            factor[np.ix_(places, places)] = np.diag(own) if own.ndim == 1 else own
        return mean, _lower(factor) if np.triu(factor, 1).any() else factor


def _lower(factor: FloatArray) -> FloatArray:
    """Return the lower triangular matrix L with L L' = F F'."""
    triangle = linalg.qr(factor.T, mode="r", check_finite=False)[0][: len(factor)].T
    return np.ascontiguousarray(triangle * np.sign(np.diagonal(triangle)))


# Offset and slopes of the mean in the parents, and own factor or standard deviations
_Conditional = Callable[[], tuple[FloatArray, FloatArray, FloatArray]]


def _written(rv: Variable, parents: list[Variable], layout: FlatVariables) -> _Conditional:
    """Read a Normal or MvNormal by its parameters: no covariance is inverted."""
    *shapes, shape = layout.shapes
    mean, spread = rv.owner.op.dist_params(rv.owner)
    if not is_known([spread]):
        raise refuse(f"the prior of {rv.name} is not Gaussian: its spread depends on other variables")
    mean = (mean + np.zeros(shape)).ravel()

    def read() -> tuple[FloatArray, FloatArray, FloatArray]:
        try:
            offset, slope = read_affine(mean, parents, shapes)
        except Unreadable:
            reason = f"its mean is not affine in {names_of(parents)}"
            raise refuse(f"the prior of {rv.name} is not Gaussian: {reason}") from None
        value = np.asarray(evaluate([spread])[0], dtype=np.float64)
        if isinstance(rv.owner.op, MvNormalRV):
            each = np.broadcast_to(value, (*shape, shape[-1])).reshape(-1, shape[-1], shape[-1])
            return offset, slope, linalg.block_diag(*(_stabilised_factor(rv.name, one) for one in each))
        sd = np.broadcast_to(value, shape).ravel()
        if not (np.isfinite(offset).all() and np.isfinite(sd).all() and (sd > 0.0).all()):
            raise refuse(f"the prior of {rv.name} has a mean or a standard deviation that is not possible")
        return offset, slope, sd

    return read


def _by_gradient(model: pm.Model, rv: Variable, layout: FlatVariables) -> _Conditional:
    """Read a variable such as a random walk off the gradient of its log density: P (mean - value), if it is Gaussian.

    ``layout`` is of the variables it depends on and, last, of itself. Random probes verify that it is Gaussian.
    """
    not_gaussian = refuse(f"the prior of {rv.name} is not Gaussian (in its unconstrained value)")
    never = getattr(rv.owner.op, "ndim_supp", 1) == 0 and not is_normal(model, rv)
    gradient = pytensor.grad(model.logp([rv]), layout.values[-1], disconnected_inputs="ignore").ravel()
    function, d, start = None if never else layout.function([gradient]), layout.dimension, layout.slices[-1].start

    def read() -> tuple[FloatArray, FloatArray, FloatArray]:
        if function is None:
            raise not_gaussian
        at_zero, change = affine_map(function, d)
        probes = np.random.default_rng(0).standard_normal((6, d)) * np.array([0.1, 0.1, 1.0, 1.0, 7.0, 7.0])[:, None]
        expected = at_zero + probes @ change
        size = float(np.abs(expected).max())
        if not np.allclose(function(probes)[0], expected, rtol=1e-5, atol=1e-7 * (1.0 + size)):  # NaN is not close
            raise not_gaussian
        precision = -0.5 * (change[start:] + change[start:].T)
        try:
            factor = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            raise refuse(f"the prior precision of {rv.name} is not positive definite") from None
        root = np.linalg.solve(factor, np.eye(d - start))  # precision^-1 = root' root
        covariance = root.T @ root
        return covariance @ at_zero, change[:start] @ covariance, np.linalg.cholesky(covariance)

    return read


def is_normal(model: pm.Model, rv: Variable) -> bool:
    """Return whether a variable is an untransformed Normal or MvNormal given the others."""
    return isinstance(rv.owner.op, NormalRV | MvNormalRV) and model.rvs_to_transforms.get(rv) is None


def noncentred(model: pm.Model, rvs: list[Variable]) -> tuple[dict[Variable, Variable], list[Variable]]:
    """Write normal variables as functions of as many independent standard normal ones; return both.

    ``mean + sd * w``, or ``mean + chol(covariance) w``, with earlier variables substituted in means and covariances.
    Variables other than untransformed Normal and MvNormal ones are not changed.
    """
    written: dict[Variable, Variable] = {}
    inputs = []
    for rv in rvs:
        op = rv.owner.op
        if not is_normal(model, rv):
            continue
        w = rv.type(f"{rv.name}_whitened")
        mean, spread = graph_replace(list(op.dist_params(rv.owner)), written, strict=False)
        if isinstance(op, MvNormalRV):
            factor = pt.linalg.cholesky(spread)
            noise = factor @ w if rv.type.ndim == 1 else (factor @ w[..., None])[..., 0]  # factors may differ by row
        else:
            noise = spread * w
        written[rv] = rv.type.filter_variable(mean + noise, allow_convert=True) if rv.type.ndim == 0 else mean + noise
        inputs.append(w)
    return written, inputs


def conditioned(
    prior: GaussianPrior, noise: GaussianPrior, map_: FloatArray, values: FloatArray
) -> tuple[GaussianPrior, float]:
    """Condition theta on ``values = map_ @ theta + noise``, centred noise; return also the log density of values."""
    r = noise.whiten((values - map_ @ prior.mean)[None])[0]
    H = prior.whiten_rows(noise.whiten(map_.T).T)
    C = linalg.cholesky(np.eye(prior.mean.size) + H.T @ H, lower=True)  # precision of whitened theta
    v = linalg.solve_triangular(C, H.T @ r, lower=True)
    log_density = 0.5 * float(v @ v - r @ r) - float(np.log(np.diagonal(C)).sum()) - noise.log_volume
    factor = prior.whiten_rows(np.eye(prior.mean.size))
    root = linalg.solve_triangular(C, factor.T, lower=True).T  # F C^-T, a root of the covariance
    return GaussianPrior(prior.mean + root @ v, _lower(root)), log_density - 0.5 * r.size * float(np.log(2.0 * np.pi))


def _stabilised_factor(name: str, covariance: FloatArray) -> FloatArray:
    """Compute the Cholesky factor, with the smallest jitter for which it exists; warn of a jitter."""
    factor, jitter = positive_factor(covariance)
    if jitter > 1e-6 or not np.trace(covariance) > 0.0:  # no rounding error
        smallest = np.linalg.eigvalsh(covariance)[0]
        raise ValueError(
            f"The prior covariance of {name} is not positive definite (smallest eigenvalue {smallest:.2g})."
        )
    if jitter:
        warnings.warn(
            f"The prior covariance of {name} is not positive definite in floating point: "
            f"{jitter * np.diagonal(covariance).mean():.1e} was added to its diagonal. To avoid this warning, add a "
            "jitter yourself.",
            stacklevel=4,
        )
    return factor


@dataclass(frozen=True, eq=False)
class IndependentPrior:
    """A variable of independent coefficients whose prior is not Gaussian.

    Attributes
    ----------
    name : str
        Name of the variable.
    free : tuple of str
        Names of the free variables that it stands for: of the first it takes the place in theta.
    spiked : bool
        Whether it is a spike and slab.
    read : callable
        Reads the prior from the model: of a spike and slab p, v0 and v1, one of each for every coefficient, else the
        tables of the densities, and which table each coefficient has, shape (k,).
    free_values : callable
        Function of coefficients ``theta[N, k]`` and a Generator: a list of the unconstrained values of ``free``, drawn
        where they are not functions of theta. None where theta is the value of the only one.
    """

    name: str
    free: tuple[str, ...]
    spiked: bool
    read: Callable[[], Any]
    free_values: Any = None

    @property
    def dirac(self) -> bool:
        """Whether it has a spike that is a point mass."""
        return self.spiked and self.free_values is not None


def independent_priors(model: pm.Model, scores: list[Variable]) -> tuple[IndependentPrior, ...]:
    """Find the variables with independent priors that are not Gaussian: spikes and slabs, or other densities."""
    spiked = sparse_variables(model)
    others = density_variables(model, {name for each in spiked for name in each.free}, scores)
    if spiked and others:
        names = ", ".join(sorted(each.name for each in others))
        raise refuse(f"beside a spike-and-slab prior, that of {names} must be Gaussian")
    return spiked + others


def SpikeSlab(
    name: str,
    p: Any = None,
    v0: Any = 0.0,
    v1: Any = 1.0,
    *,
    shape: Any = None,
    dims: Any = None,
    model: pm.Model | None = None,
) -> Variable:
    """Add independent coefficients from ``p N(0, v1) + (1 - p) N(0, v0)`` to the model: sparse scores.

    Parameters
    ----------
    name : str
        Name of the variable.
    p : float or array_like, shape (d,), optional
        Probability of the slab; by default Theorem 2.5's 1 - exp(-1 / d), d the number of coefficients, but at least
        0.1 (see :func:`~pymc_pacauc.problem.problem.default_inclusion_probability`).
    v0 : float or array_like, shape (d,), default 0.0
        Variance of the spike; 0 for a point mass at zero, which Theorem 2.5 covers whatever n.
    v1 : float or array_like, shape (d,), default 1.0
        Variance of the slab. For a linear score without offset only v0 / v1 matters.
    shape : int or tuple of int, optional
        As for any PyMC variable; one of them is needed.
    dims : str or sequence of str, optional
        As for any PyMC variable; one of them is needed.
    model : pymc.Model, optional
        The model; by default the one on the context stack.

    Returns
    -------
    TensorVariable
        The coefficients. With v0 = 0 a Deterministic, and the model also holds ``{name}_slab`` and ``{name}_latent``,
        its free parts, and ``{name}_included``, the indicators.

    Raises
    ------
    ValueError
        If not one of ``shape`` and ``dims`` is given, p is not in (0, 1), v1 is not positive, v0 is negative or above
        v1, or v0 is 0 for some coefficients only.
    TypeError
        If ``shape`` is not made of integers.

    See Also
    --------
    inclusion_probability : Posterior probability of the slab for each coefficient.
    regularization_path : Fits for a range of v0.

    Notes
    -----
    With v0 > 0 and linear scores, spike and slab differ by scale only, on which the risk does not depend: the exact
    posterior also has a mode with every coefficient in the spike. For inclusion probabilities prefer v0 = 0.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> with pm.Model(coords={"feature": list("abcd")}):
    ...     theta = pac.SpikeSlab("theta", p=0.2, dims="feature")
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.2, gamma=80)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> approx.inclusion_probability.round(1).values
    array([1., 0., 0., 0.])
    """
    model = pm.modelcontext(model)
    shape = _shape(shape, dims, model)
    if p is None:
        p = default_inclusion_probability(int(np.prod(shape)))
    _check(p, v0, v1)
    place = {"dims": dims} if dims is not None else {"shape": shape}
    with model:
        if not isinstance(v0, Variable) and not np.any(np.asarray(v0)):
            slab = pm.Normal(f"{name}_slab", 0.0, pt.sqrt(v1), **place)
            latent = pm.Normal(f"{name}_latent", **place)
            included = pt.lt(latent, -np.sqrt(2.0) * pt.erfcinv(2.0 * pt.cast(p, "float64")))  # its quantile
            pm.Deterministic(f"{name}_included", included.astype("int8"), dims=dims)
            return pm.Deterministic(name, pt.switch(included, slab, 0.0), dims=dims)
        weights = pt.stack(pt.broadcast_arrays(1.0 - pt.as_tensor(p), pt.as_tensor(p)), axis=-1)
        scales = pt.stack(pt.broadcast_arrays(pt.sqrt(v0), pt.sqrt(v1)), axis=-1)
        return pm.NormalMixture(name, w=weights, mu=0.0, sigma=scales, **place)


def prior_from(approx: Any, name: str, *, as_name: str | None = None, model: pm.Model | None = None) -> Variable:
    """Use the posterior of a variable in an earlier model as its prior in a new model.

    Parameters
    ----------
    approx : EPApproximation
        Result of ``pm.fit(method=pac.EP())``.
    name : str
        Name of a variable of its model.
    as_name : str, optional
        Name of the new variable; by default the same.
    model : pm.Model, optional
        The new model; by default the one on the context stack.

    Returns
    -------
    Variable
        A Normal or MvNormal with the dims of the old variable where the new model has them. A matrix of coefficients
        is a Deterministic of a flat MvNormal, ``{name}_flat``.

    Raises
    ------
    TypeError
        If ``approx`` is not a result of ``pm.fit(method=pac.EP())``.
    ValueError
        If ``name`` is no variable of ``approx`` or a hyper-parameter, or its posterior has a sign, a range or a spike.

    See Also
    --------
    EP : Fit the earlier model.

    Notes
    -----
    The Gaussian has the moments of ``approx.q``, which has the direction of the coefficients right; where
    hyper-parameters were integrated, those of the whole mixture. Pairs of one row of the
    earlier data and one of the new data are not compared: ``docs/concepts/priors.md`` says what that loses.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(80, 2))
    >>> y = X[:, 0] > 0.2
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", shape=2)
    ...     auc = pac.AUCPotential("auc", X[:40] @ theta, y[:40], gamma=40)
    ...     yesterday = pm.fit(method=pac.EP(), progressbar=False)
    >>> with pm.Model():
    ...     theta = pac.prior_from(yesterday, "theta")
    ...     auc = pac.AUCPotential("auc", X[40:] @ theta, y[40:], gamma=40)
    ...     today = pm.fit(method=pac.EP(), progressbar=False)
    >>> bool(today.q.mean[0] > 3 * abs(today.q.mean[1]))
    True
    """
    approx = opened(approx)
    shape = _shape_handed_on(approx, name)
    part = approx.source.parts[name]
    mean, covariance = approx.q.mean[part], approx.q.covariance[part, part]
    model, new = pm.modelcontext(model), as_name or name
    lengths = {dim: int(length.eval()) for dim, length in model.dim_lengths.items()}
    dims = approx.model.named_vars_to_dims.get(name)
    dims = dims if dims is not None and [lengths.get(dim) for dim in dims] == list(shape) else None
    with model:
        if not shape:
            return pm.Normal(new, mean[0], float(np.sqrt(covariance[0, 0])))
        if len(shape) == 1:
            return pm.MvNormal(new, mean, chol=np.linalg.cholesky(covariance), dims=dims)
        flat = pm.MvNormal(f"{new}_flat", mean, chol=np.linalg.cholesky(covariance))
        return pm.Deterministic(new, flat.reshape(shape), dims=dims)


def _shape_handed_on(approx: Any, name: str) -> tuple[int, ...]:
    """Return the shape of a variable of an approximation; refuse one whose posterior cannot become a prior."""
    source = getattr(approx, "source", None)
    if source is None:
        raise TypeError(
            f"approx must be the result of pm.fit(method=pac.EP()); got {type(approx).__name__}. For draws write the "
            "prior yourself: pm.MvNormal(name, mean of the draws, their covariance)."
        )
    hyper = approx.hyper.names if hasattr(approx, "hyper") else []
    known = [each for each in source.names if each not in hyper]
    if name not in known:
        raise ValueError(
            f"approx has no coefficients {name!r}; it has {', '.join(known)}. (For a hyper-parameter write a prior "
            "with the moments of approx.hyper_posterior.)"
        )
    prior = next((each for each in source.independent if each.name == name), None)
    bounded = prior is not None and approx.model.rvs_to_transforms.get(approx.model[name]) is not None
    if bounded or prior in source.sparse or name in source.transformed:
        raise ValueError(
            f"The posterior of {name} has a sign, a range, a spike or a sum of zero, which a Gaussian prior cannot "
            "represent. Fit all batches together, or give the variable a prior that is positive everywhere."
        )
    shape: tuple[int, ...] = source.layout.shapes[source.names.index(name)]
    return shape


def sparse_variables(model: pm.Model) -> tuple[IndependentPrior, ...]:
    """Find the spike-and-slab variables of a model: those of :func:`SpikeSlab`, and mixtures of two centred normals."""
    found = [_point_mass(model, variable) for variable in model.deterministics]
    found += [_mixture(model, variable) for variable in model.free_RVs]
    return tuple(each for each in found if each is not None)


def _point_mass(model: pm.Model, variable: Variable) -> IndependentPrior | None:
    """Read a Deterministic of prior p N(0, v1) + (1 - p) delta(0), made of a slab and a latent variable cut at p."""
    slab, latent = (model.named_vars.get(f"{variable.name}_{part}") for part in ("slab", "latent"))
    if slab not in model.free_RVs or latent not in model.free_RVs:
        return None
    compared = [v.owner for v in ancestors([variable]) if v.owner is not None and latent in v.owner.inputs[:1]]
    cuts = [node.inputs[1] for node in compared if isinstance(getattr(node.op, "scalar_op", None), LT)]
    if len(cuts) != 1:
        return None
    _, sigma = slab.owner.op.dist_params(slab.owner)
    if set(model.free_RVs) & set(ancestors([cuts[0], sigma])):
        return None

    def hyperparameters() -> tuple[FloatArray, FloatArray, FloatArray]:
        cut, sd = evaluate([cuts[0], sigma])
        shape = shape_now(slab)
        p, v1 = (np.broadcast_to(value, shape).astype(np.float64).ravel() for value in (ndtr(cut), np.square(sd)))
        return p, np.zeros(p.size), v1

    def free_values(theta: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        """Draw slab and latent variable from their prior given the coefficients."""
        p, _, v1 = hyperparameters()
        included = theta != 0.0
        share = rng.uniform(size=theta.shape)
        values = np.where(included, theta, np.sqrt(v1) * rng.standard_normal(theta.shape))
        return [values, ndtri(np.where(included, p * share, p + (1.0 - p) * share))]

    return IndependentPrior(variable.name, (slab.name, latent.name), True, hyperparameters, free_values)


def _mixture(model: pm.Model, variable: Variable) -> IndependentPrior | None:
    """Read a variable of prior p N(0, v1) + (1 - p) N(0, v0), a mixture of spike and slab in either order."""
    if not isinstance(variable.owner.op, MixtureRV) or model.rvs_to_transforms[variable] is not None:
        return None
    weights, *components = (v for v in variable.owner.inputs if hasattr(v.type, "dtype"))
    normal = components[0]
    if len(components) != 1 or not isinstance(getattr(normal.owner, "op", None), NormalRV):
        return None
    mean, sigma = normal.owner.op.dist_params(normal.owner)
    if weights.type.shape[-1] != 2 or set(model.free_RVs) & set(ancestors([weights, mean, sigma])):
        return None
    if np.any(evaluate([mean])[0]):
        return None

    def hyperparameters() -> tuple[FloatArray, FloatArray, FloatArray]:
        share, sd = evaluate([weights, sigma])
        shape = shape_now(variable)
        share, sd = (np.broadcast_to(value, (*shape, 2)).astype(np.float64).reshape(-1, 2) for value in (share, sd))
        slab = np.argmax(sd, axis=1) if (sd[:, 0] != sd[:, 1]).all() else np.ones(len(sd), dtype=np.intp)
        row = np.arange(len(sd))
        return share[row, slab], sd[row, 1 - slab] ** 2, sd[row, slab] ** 2

    return IndependentPrior(variable.name, (variable.name,), True, hyperparameters)


def density_variables(model: pm.Model, taken: set[str], scores: list[Variable]) -> tuple[IndependentPrior, ...]:
    """Find the variables with independent, not normal entries on which no other variable's prior depends.

    The exception is a horseshoe: the scales of the entries of one normal variable, on which the scores do not depend.
    Its normal variable has a density too, in which the scales are integrated out.
    """
    found = []
    above = _parents(model)
    scales = {scale: rv for scale, rv in local_scales(model, scores).items() if above[rv] == {scale}}
    for rv, others in above.items():
        below = [other for other, each in above.items() if rv in each]
        if rv in scales and model.rvs_to_transforms[scales[rv]] is None:
            found.append(_scale_mixture(scales[rv], rv, _density_variable(model, rv)))
        elif rv.name not in taken and _is_single(rv) and not others and not below:
            found.append(_density_variable(model, rv))
    return tuple(found)


def local_scales(model: pm.Model, scores: list[Variable]) -> dict[Variable, Variable]:
    """Find local scales: map each variable that scales entries of one normal variable, and nothing else, to it."""
    above = _parents(model)
    found = {}
    for scale in model.free_RVs:
        below = [rv for rv, others in above.items() if scale in others]
        if above[scale] or len(below) != 1 or not isinstance(below[0].owner.op, NormalRV):
            continue
        rv, reached = below[0], set(ancestors(scores, blockers=below))
        if scale.type.ndim and scale not in reached and _is_single(scale) and shape_now(scale) == shape_now(rv):
            found[scale] = rv
    return found


def _parents(model: pm.Model) -> dict[Variable, set[Variable]]:
    """Return the free variables that the prior of each free variable depends on."""
    return {rv: set(model.free_RVs) & set(ancestors(rv.owner.inputs)) for rv in model.free_RVs}


def _is_single(rv: Variable) -> bool:
    op = rv.owner.op
    return getattr(op, "ndim_supp", 1) == 0 and not isinstance(op, NormalRV) and rv.type.dtype == "float64"


@np.errstate(under="ignore")
def log_mixture_of_normals(x: FloatArray, sd: FloatArray, log_mass: FloatArray) -> FloatArray:
    """Compute log sum_j exp(log_mass_j) N(x_i; 0, sd_j^2), (n,), without SciPy's checks, which take far longer."""
    terms = np.divide.outer(x, sd)
    np.square(terms, out=terms)
    terms *= -0.5
    terms += log_mass - np.log(sd) - 0.5 * np.log(2.0 * np.pi)
    top = terms.max(axis=1)
    terms -= top[:, None]
    return top + np.log(np.exp(terms, out=terms).sum(axis=1))


def _scale_mixture(rv: Variable, scale: Variable, prior: IndependentPrior) -> IndependentPrior:
    """Read a normal variable whose entries each have a ``scale`` with a known ``prior``, as in a horseshoe."""
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    value, shape = scale.type("scale"), shape_now(rv)
    [graph] = graph_replace([sigma + pt.zeros_like(value)], {scale: value}, strict=False)
    spread, size = FlatVariables((value,), (shape,)).function([graph.ravel()]), int(np.prod(shape))

    def read() -> list[tuple[float, FloatArray, Table]]:
        """Mean, standard deviations at the nodes of the scale, and the table of these nodes, of each coefficient."""
        if not is_known([mu]):
            raise refuse(f"the mean of {rv.name} depends on other variables")
        rng = np.random.default_rng(0)
        some, masks = np.exp(rng.standard_normal((2, size))), rng.random((32, size)) < 0.5
        mixed, each = np.where(masks, some[0], some[1]), spread(some)[0]
        if not np.allclose(spread(mixed)[0], np.where(masks, each[0], each[1]), rtol=1e-10, atol=0.0):
            raise refuse(f"an entry of {scale.name} is the scale of several entries of {rv.name}")
        mean = np.broadcast_to(evaluate([mu])[0], shape).astype(np.float64).ravel()
        tables, which = prior.read()
        sds = [spread(_at_every_entry(table.nodes, size))[0] for table in tables]
        return [(float(mean[k]), sds[held][:, k], tables[held]) for k, held in enumerate(which)]

    def tables() -> Tables:
        known = read()

        def densities(x: FloatArray, some: Sequence[int]) -> FloatArray:
            each = [(x - known[k][0], known[k][1], known[k][2].log_mass) for k in some]
            return np.column_stack([log_mixture_of_normals(*one) for one in each])

        return _tables(rv.name, densities, [([mean], []) for mean, _, _ in known])

    def free_values(theta: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        """Return the coefficients, and their scales, drawn given these."""
        values = np.empty_like(theta)
        for k, (mean, sd, table) in enumerate(read()):
            log_mass = table.log_mass - np.log(sd) - 0.5 * ((theta[:, k, None] - mean) / sd) ** 2
            mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True)).cumsum(axis=1)
            values[:, k] = table.nodes[(mass < rng.random((len(theta), 1)) * mass[:, -1:]).sum(axis=1)]
        return [theta, *([values] if prior.free_values is None else prior.free_values(values, rng))]

    return IndependentPrior(rv.name, (rv.name, scale.name), False, tables, free_values)


def _density_variable(model: pm.Model, rv: Variable) -> IndependentPrior:
    """Read a variable by its density, which PyMC gives; it enters theta untransformed."""
    value, shape, transform = rv.type(f"{rv.name}_value"), shape_now(rv), model.rvs_to_transforms[rv]
    layout = FlatVariables((value,), (shape,))
    moved: Any = None
    try:
        log_density = layout.function([pm.logp(rv, value).ravel()])
        if transform is not None:
            moved = layout.function([transform.forward(value, *rv.owner.inputs).ravel()])
        parts = [v for v in ancestors(rv.owner.inputs) if is_random(v.owner)]  # of a mixture
        guesses = [v.owner.op.dist_params(v.owner)[0] for v in parts] or [support_point(rv)]
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:  # what PyMC has no rule for
        raise refuse(f"the prior of {rv.name} has no density that PyMC could give ({error})") from error
    numbers = [v for v in rv.owner.inputs if isinstance(v.type, TensorType) and v.type.dtype == "float64"]
    others = [v for v in numbers if is_known([v])]  # not the components of a mixture, which are random

    def densities(x: FloatArray, some: Sequence[int]) -> FloatArray:
        return log_density(_at_every_entry(x, layout.dimension))[0][:, some]

    def tables() -> Tables:
        values = evaluate(guesses), evaluate(others)

        def near(k: int) -> tuple[list[float], ...]:
            """Return the values of the coefficient's own parameters; of a mixture's components, all of them."""
            own = [[each.ravel()[[k]] if each.shape == shape else np.unique(each) for each in some] for some in values]
            return tuple([x for each in some for x in each] for some in own)

        return _tables(rv.name, densities, [near(k) for k in range(layout.dimension)])

    free_values = None if moved is None else lambda theta, rng: moved(theta)
    return IndependentPrior(rv.name, (rv.name,), False, tables, free_values)


def _at_every_entry(x: FloatArray, size: int) -> FloatArray:
    """Return arrays of shape (N, size), each row filled with one number of x."""
    return np.repeat(x[:, None], size, axis=1)


def _tables(
    name: str, densities: Callable[[FloatArray, Sequence[int]], FloatArray], near: list[tuple[list[float], ...]]
) -> Tables:
    """Tabulate the log densities ``densities(x, coefficients)``, (N, coefficients), each different one once.

    ``near`` says about which points of each coefficient the nodes are finest, and, if these will not do, about which
    others too.
    """
    with np.errstate(all="ignore"):
        probes = densities(np.random.default_rng(0).standard_cauchy(16), range(len(near)))
    _, first, which = np.unique(np.nan_to_num(probes), axis=1, return_index=True, return_inverse=True)

    def density(x: FloatArray, k: int) -> FloatArray:
        return densities(x, [k])[:, 0]

    made = [_tabulated(name, partial(density, k=int(k)), *near[k]) for k in first]
    return made, which.ravel().astype(np.intp)


def _tabulated(
    name: str, density: Callable[[FloatArray], FloatArray], centres: list[float], more: list[float]
) -> Table:
    """Tabulate a density with nodes finest about the centres; if that fails, about the prior's parameters too."""
    with np.errstate(all="ignore"):
        inside = [x for x in more if np.isfinite(x) and np.isfinite(density(np.array([x]))[0])]
    for points in (centres, [*centres, *inside]):
        try:
            return tabulate(density, points, f"the prior of {name}")
        except ValueError as error:
            reason = str(error)
    raise refuse(reason)


def _shape(shape: Any, dims: Any, model: pm.Model) -> tuple[int, ...]:
    if (shape is None) == (dims is None):
        raise ValueError("SpikeSlab needs its number of coefficients: give either shape= or dims=.")
    if shape is not None:
        return (shape,) if np.ndim(shape) == 0 else tuple(shape)
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    unknown = [dim for dim in names if dim not in model.dim_lengths]
    if unknown:
        raise ValueError(f"dims has {', '.join(map(repr, unknown))}, unknown to the model: declare it in coords=.")
    return tuple(int(model.dim_lengths[dim].eval()) for dim in names)


def _check(p: Any, v0: Any, v1: Any) -> None:
    if not isinstance(p, Variable) and not np.all((np.asarray(p) > 0.0) & (np.asarray(p) < 1.0)):
        raise ValueError(f"p, the probability of the slab, must be in (0, 1); got {p!r}.")
    if any(isinstance(v, Variable) for v in (v0, v1)):
        return
    v0, v1 = np.asarray(v0, dtype=float), np.asarray(v1, dtype=float)
    if not (np.isfinite(v1).all() and (v1 > 0.0).all()):
        raise ValueError(f"v1, the variance of the slab, must be finite and > 0; got {v1}.")
    if not ((v0 >= 0.0).all() and (v0 <= v1).all()):
        raise ValueError(
            f"v0, the variance of the spike, must be at least 0 and at most v1, that of the slab; got v0={v0}, v1={v1}."
        )
    if (v0 == 0.0).any() and not (v0 == 0.0).all():
        raise ValueError(f"v0 must be 0 for all coefficients of a SpikeSlab or for none; got {v0}: use two variables.")

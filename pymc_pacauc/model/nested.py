"""Models that are Gaussian given a few hyper-parameters: EP for each of their values, and the mixture of these fits.

A model that EP cannot fit directly is read with some of its variables fixed (``pm.do``): those whose prior is not
Gaussian and on which other variables depend (scales, lengthscales, mixture weights), or that multiply others in the
scores. The rest is a :class:`~pymc_pacauc.model.read.ModelProblem` for every value of these, made by one reader, in
whatever way the hierarchy is written. :mod:`pymc_pacauc.tune.nested` integrates over the hyper-parameters, in their
unconstrained coordinates.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from rich.progress import TextColumn
from scipy import special

from pymc_pacauc.array_result import Estimate, KnownResult
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.ep.loop import ConvergenceWarning, UnsupportedError
from pymc_pacauc.ep.posterior import ByCovariance
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.model.approximation import EPApproximation, PlainEP
from pymc_pacauc.model.auc_term import NotLinearGaussianError, names_of, refuse
from pymc_pacauc.model.compat import LateBar, pareto_smooth
from pymc_pacauc.model.graph import (
    MODE,
    FlatVariables,
    HeldData,
    Unreadable,
    draws_from_prior,
    entry_labels,
    evaluate,
    flat_variables,
)
from pymc_pacauc.model.prior import GaussianMixture, gaussian_mixtures, is_normal, local_scales
from pymc_pacauc.model.read import ModelProblem, ProblemReader, checked_terms, coefficients, problem_of
from pymc_pacauc.model.results import LARGEST_K
from pymc_pacauc.numerics import DRAWS, SEED, FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc.log_evidence import LogEvidence, combine
from pymc_pacauc.tune import nested as tune
from pymc_pacauc.tune.nested import MOST_HYPER, MOST_POINTS, POINTS, Conditional, Density, NestedFit

logger = logging.getLogger("pymc")  # where people look for messages of pm.fit


@dataclass(frozen=True, eq=False)
class HyperModel:
    """A model, and how it reads given its hyper-parameters.

    Attributes
    ----------
    model : pm.Model
        The model.
    hyper : tuple of TensorVariable
        The hyper-parameters, free variables of ``model``.
    layout : FlatVariables
        phi: their unconstrained values, one after the other.
    """

    model: pm.Model
    hyper: tuple[Variable, ...]
    layout: FlatVariables

    def source_at(self, phi: FloatArray, like: Problem | None = None) -> ModelProblem:
        """Read the problem given phi, with scores, pairs and gamma of ``like`` where these are known to be the same."""
        for variable, value in zip(self.hyper, self.natural(phi[None]), strict=True):
            self.given[variable.name].set_value(value[0].astype(variable.dtype))
        return self._reader.read(like)

    @cached_property
    def given(self) -> pm.Model:
        """A copy of the model in which the hyper-parameters are ``pm.Data``."""
        values = zip(self.hyper, self.natural(self._quantiles[1:2]), strict=True)
        with warnings.catch_warnings():  # that the copy has no use for the objects of gp.prior: only arrays are read
            warnings.filterwarnings("ignore", "Detected variables likely created by GP objects")
            return pm.do(self.model, {rv.name: value[0].astype(rv.dtype) for rv, value in values})

    @cached_property
    def _reader(self) -> ProblemReader:
        return ProblemReader(self.given)

    @cached_property
    def _function(self) -> Callable[[FloatArray], list[FloatArray]]:
        """The log density of phi, and the hyper-parameters."""
        density = pt.sum([pt.sum(term) for term in self.model.logp(list(self.hyper), sum=False)])
        return self.layout.function([density, *self.model.replace_rvs_by_values(list(self.hyper))])

    def natural(self, phi: FloatArray) -> list[FloatArray]:
        """Compute the hyper-parameters themselves, ``phi[N, k] -> [N, *shape]`` each."""
        return self._function(phi)[1:]

    @cached_property
    def prior_draws(self) -> FloatArray:
        """Draws of phi from its prior, shape (N, k), the same every time."""
        graphs = draws_from_prior(self.model, self.hyper)
        drawn = _prior_draws(self.hyper, graphs, SEED, draws=128)  # centre and scale only have to be roughly right
        return np.concatenate([each.reshape(len(each), -1) for each in drawn], axis=1).astype(np.float64)

    @cached_property
    def _quantiles(self) -> FloatArray:
        """Quantiles of the prior: one standard deviation below the median, the median, one above."""
        return np.quantile(self.prior_draws, [0.16, 0.5, 0.84], axis=0)

    @cached_property
    def certified_values(self) -> tuple[FloatArray, FloatArray]:
        """Values of phi that the prior alone chose, shape (K, k), and their prior masses."""
        drawn, shares = self.prior_draws, (np.arange(POINTS) + 0.5) / POINTS
        values = np.quantile(drawn, shares, axis=0) if drawn.shape[1] == 1 else drawn[:POINTS]
        return values, np.full(POINTS, 1.0 / POINTS)

    def listed(self, problem_at: Callable[[FloatArray], Problem]) -> Conditional:
        """Return the model with the certified values of phi alone; ``log_prior`` are their log masses."""
        values, masses = self.certified_values
        known = {phi.tobytes(): np.log(mass) for phi, mass in zip(values, masses, strict=True)}

        def log_prior(phi: FloatArray) -> FloatArray:
            return np.array([known[each.tobytes()] for each in phi])

        return Conditional(problem_at, log_prior, values[np.argmax(masses)], np.ones(values.shape[1]), values)

    @cached_property
    def conditional(self) -> Conditional:
        low, middle, high = self._quantiles
        first = self.source_at(middle).problem
        like = None if self._reader.depends_on(self.given[rv.name] for rv in self.hyper) else first

        def problem_at(phi: FloatArray) -> Problem:
            # pairs, and everything computed about them, are the same at every phi; with `like`, equal rows too
            found = replace(self.source_at(phi, like).problem, pairs=first.pairs)
            vars(found.scores).update({} if like is None else {"distinct": like.scores.distinct})
            return found

        scale = np.maximum(0.5 * (high - low), 1e-3)
        return Conditional(problem_at, lambda phi: self._function(phi)[0], middle, scale)

    @property
    def names(self) -> list[str]:
        return [str(rv.name) for rv in self.hyper]

    @cached_property
    def labels(self) -> list[str]:
        """A name for each entry of phi."""
        return entry_labels(self.names, self.layout.shapes)

    def describe(self, direction: FloatArray) -> str:
        """Describe a direction of phi in words."""
        large = np.abs(direction) > 1e-3
        moved = [label for label, part in zip(self.labels, large, strict=True) if part]
        common = np.abs(np.sign(direction[large]).sum()) == len(moved)
        return moved[0] if len(moved) == 1 else f"a {'common scale' if common else 'combination'} of {', '.join(moved)}"

    @property
    def source(self) -> ModelProblem:
        """The model's own variables, hyper-parameters among them, with the problem given the centre of their prior."""
        inner, free = self.source_at(self.conditional.centre), flat_variables(self.model)
        variables, layout = coefficients(self.model, free, inner.independent)
        data = HeldData.of(self.model)
        return replace(inner, model=self.model, variables=variables, layout=layout, free=free, data=data)


@dataclass(frozen=True, eq=False)
class MixtureModel(HyperModel):
    """A model with variables whose priors are mixtures of Gaussians: Gaussian given the component of each.

    phi holds the numbers of the components, one for each of these variables.
    """

    mixtures: tuple[GaussianMixture, ...]

    @classmethod
    def of(cls, model: pm.Model, mixtures: list[GaussianMixture]) -> MixtureModel:
        return cls(model, (), flat_variables(model).part([]), tuple(mixtures))

    @property
    def given(self) -> pm.Model:
        return self.model

    def source_at(self, phi: FloatArray, like: Problem | None = None) -> ModelProblem:
        chosen = {each.name: int(k) for each, k in zip(self.mixtures, phi, strict=True)}
        return self._reader.read(like, chosen)

    def natural(self, phi: FloatArray) -> list[FloatArray]:
        return list(phi.T)

    @cached_property
    def certified_values(self) -> tuple[FloatArray, FloatArray]:
        """All components and their prior weights."""
        weights = [each.weights for each in self.mixtures]
        values = np.array(list(product(*(range(each.size) for each in weights))), dtype=np.float64)
        masses = np.prod([each[values[:, j].astype(int)] for j, each in enumerate(weights)], axis=0)
        return values[masses > 0.0], masses[masses > 0.0]

    @cached_property
    def conditional(self) -> Conditional:
        first = self.source_at(self.certified_values[0][0]).problem
        return self.listed(lambda phi: self.source_at(phi, first).problem)

    @property
    def names(self) -> list[str]:
        return [f"{each.name}_component" for each in self.mixtures]

    @property
    def labels(self) -> list[str]:
        return self.names


def read_model(model: pm.Model) -> ModelProblem | HyperModel:
    """Read the problem of a model, or, where EP cannot fit it directly, its problem given some of its variables.

    Raises
    ------
    NotLinearGaussianError
        Where EP cannot read it even then, or these are too many.
    """
    scores = [term.scores for term in checked_terms(model)]
    local = local_scales(model, scores)
    others = [rv for rv in model.free_RVs if not is_normal(model, rv) and rv not in local]
    hyper = {rv for rv in others if _acts_on_others(model, rv, scores)}
    if mixtures := gaussian_mixtures(model):
        return _of_components(model, list(mixtures.values()), hyper)
    refusal: NotLinearGaussianError | None = None
    try:
        return _given(model, hyper) if hyper else problem_of(model)
    except NotLinearGaussianError as error:
        refusal = error
    for rv in _normal_by_size(model):  # such as the logarithm of a scale
        if len(hyper) + 1 < len(model.free_RVs) and _acts_on_others(model, rv, scores):
            try:
                return _given(model, hyper | {rv})
            except NotLinearGaussianError:
                continue
    raise refusal


def _of_components(model: pm.Model, mixtures: list[GaussianMixture], hyper: set[Variable]) -> MixtureModel:
    """Return the model given the components of its mixtures; refuse one that cannot be read."""
    names = ", ".join(each.name for each in mixtures)
    if hyper:
        raise refuse(
            f"the prior of {names} is a mixture of Gaussians, beside hyper-parameters ({names_of(hyper)})",
            f"Fix {names_of(hyper)}, or use pm.sample(step=pac.TemperingSMC()).",
        )
    count = int(np.prod([len(each.parts) for each in mixtures]))
    if count > MOST_POINTS:
        raise refuse(
            f"the mixtures of Gaussians {names} have {count} combinations of components, and at most {MOST_POINTS} are "
            "fitted",
            "Use one variable for all coefficients, or pm.sample(step=pac.TemperingSMC()).",
        )
    found = MixtureModel.of(model, mixtures)
    assert found.conditional.dimension == len(mixtures)  # the trial
    return found


def _given(model: pm.Model, hyper: set[Variable]) -> HyperModel:
    """Return the model given some variables; refuse one that cannot be read."""
    chosen = tuple(rv for rv in model.free_RVs if rv in hyper)
    if len(chosen) == len(model.free_RVs):
        raise refuse(f"the scores depend on {names_of(chosen)} other than as hyper-parameters of Gaussian variables")
    values = [model.rvs_to_values[rv] for rv in chosen]
    free = flat_variables(model)
    layout = free.part([free.values.index(value) for value in values])
    names = names_of(chosen)
    if layout.dimension > MOST_HYPER:
        raise refuse(
            f"it has {layout.dimension} hyper-parameters ({names}), and at most {MOST_HYPER} are integrated over",
            "Fix some of them, use one for several, or use pm.sample(step=pac.TemperingSMC()), which has no such "
            "limit.",
        )
    others = set(model.free_RVs) - set(chosen)
    if random := others & set(ancestors(list(chosen))):
        raise refuse(f"the prior of {names} depends on {names_of(random)}, which is no hyper-parameter")
    found = HyperModel(model, chosen, layout)
    with np.errstate(all="ignore"):
        found.source_at(found.conditional.centre)
    return found


def _prior_draws(named: Iterable[Variable], variables: list[Variable], seed: int, **options: Any) -> list[FloatArray]:
    try:
        return pm.draw(variables, random_seed=seed, mode=MODE, **options)
    except (ArithmeticError, ValueError) as error:
        raise refuse(
            f"the prior of {names_of(named)} cannot be drawn from ({str(error).splitlines()[0]})",
            "Look for a parameter that is NaN, a scale that can be negative, or a prior so wide that it overflows.",
        ) from error


def _acts_on_others(model: pm.Model, rv: Variable, scores: list[Variable]) -> bool:
    """Return whether other variables, or their effect on the scores, depend on a variable."""
    children = [other for other in model.free_RVs if other is not rv]
    children += [] if is_normal(model, rv) else model.observed_RVs
    return rv in set(ancestors(children)) or not _adds(model, rv, scores)


def _adds(model: pm.Model, rv: Variable, scores: list[Variable]) -> bool:
    """Return whether the effect of a variable on the scores does not depend on the others."""
    free = model.free_RVs
    first, second = (dict(zip(free, _prior_draws(free, free, seed), strict=True)) for seed in (1, 2))
    mixed = {**second, rv: first[rv]}, {**first, rv: second[rv]}
    try:
        a, b, c, d = (np.concatenate(evaluate(scores, at)) for at in (first, second, *mixed))
    except Unreadable:
        return False
    return bool(np.allclose(a + b, c + d, rtol=1e-8, atol=1e-10 * (1.0 + np.abs(a).max())))


def _normal_by_size(model: pm.Model) -> list[Variable]:
    """List Gaussian variables small enough to be hyper-parameters (the logarithm of a scale), small ones first."""
    free = flat_variables(model)
    sizes = {model.values_to_rvs[v]: int(np.prod(s)) for v, s in zip(free.values, free.shapes, strict=True)}
    few = [rv for rv, size in sizes.items() if size <= MOST_HYPER and is_normal(model, rv)]
    return sorted(few, key=lambda rv: sizes[rv])


@dataclass(frozen=True, eq=False)
class MixturePosterior(ByCovariance):
    """A posterior over hyper-parameters and coefficients, in the order of the model's variables.

    Attributes
    ----------
    nested : NestedFit
        The mixture.
    inner, outer : ndarray of int
        Where the coefficients, in the order of the fits, and the hyper-parameters are.
    exact : bool
        Whether coefficients have the exact distribution of their length, where it is known; else EP's Gaussians.
    """

    nested: NestedFit
    inner: Any
    outer: Any
    exact: bool = True

    def _joined(self, coefficients: list[FloatArray]) -> FloatArray:
        """Join hyper-parameters and coefficients of each component, shape (K, D)."""
        found = np.empty((len(coefficients), self.inner.size + self.outer.size))
        found[:, self.outer] = self.nested.phi[:, : self.outer.size]  # numbers of components are no variables
        found[:, self.inner] = coefficients
        return found

    def _of(self, fit: Fit) -> Any:
        return fit.corrected if self.exact else fit.posterior

    @cached_property
    def score_means(self) -> FloatArray:
        """Hyper-parameters and coefficients of the mean score given them, of each component, shape (K, D)."""
        return self._joined([each.posterior.mean for each in self.nested.fits])

    @cached_property
    def means(self) -> FloatArray:
        """The mean of each component, shape (K, D)."""
        return self._joined([self._of(each).mean for each in self.nested.fits])

    @cached_property
    def score_mean(self) -> FloatArray:
        """Coefficients of the mean score, the one to deploy, where scores are linear in the coefficients."""
        return self.nested.weights @ self.score_means

    @cached_property
    def mean(self) -> FloatArray:
        return self.nested.weights @ self.means

    @cached_property
    def covariance(self) -> FloatArray:
        centred = self.means - self.mean
        found = centred.T @ (centred * self.nested.weights[:, None])
        found[np.ix_(self.inner, self.inner)] += self.nested.mean(lambda each: self._of(each).covariance)
        return found

    @cached_property
    def variance(self) -> FloatArray:
        found = self.nested.weights @ (self.means - self.mean) ** 2
        found[self.inner] += self.nested.mean(lambda each: self._of(each).variance)
        return found


class NestedApproximation(EPApproximation):
    """A mixture of EP's fits over hyper-parameters: what ``pm.fit(method=pac.EP())`` returns for hierarchies.

    It has what :class:`~pymc_pacauc.results.EPApproximation` has, and more. ``fit`` is the fit of the heaviest point;
    ``leave_out`` and ``history`` are its own, given those hyper-parameters.

    Parameters
    ----------
    nested : NestedFit
        Values of the hyper-parameters, unconstrained, their weights, and EP's fit given each.
    hyper : HyperModel
        The model given its hyper-parameters.
    density : Density
        Prior times evidence, whose fits these are.
    integrated : bool
        Whether hyper-parameters are integrated over; else they are at their mode.
    flat : tuple of str
        What the data cannot move: its posterior is its prior.

    Attributes
    ----------
    hyper_posterior : Dataset
        The hyper-parameters at these values, over ``point``, with ``weight`` and ``log_evidence`` (given them).
    log_evidence : float
        Log evidence of the whole model, hyper-parameters integrated out; given their mode, if they were maximised.
    posterior : MixturePosterior
        Mean and covariance of all free variables, hyper-parameters in their unconstrained coordinates.

    See Also
    --------
    pymc_pacauc.EP : Makes one.
    pymc_pacauc.maximize_evidence : The mode without a prior of the hyper-parameters.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X, group = rng.normal(size=(60, 2)), np.repeat(np.arange(6), 10)
    >>> with pm.Model():
    ...     spread = pm.HalfNormal("spread", 1.0)
    ...     theta = pm.Normal("theta", pm.Normal("common", shape=2), spread, shape=(6, 2))
    ...     auc = pac.AUCPotential("auc", (X * theta[group]).sum(axis=1), X[:, 0] > 0.2, gamma=30)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> sorted(approx.hyper_posterior.data_vars)
    ['log_evidence', 'spread', 'weight']
    """

    def __init__(
        self, nested: NestedFit, hyper: HyperModel, density: Density, *, integrated: bool, flat: tuple[str, ...]
    ):
        self.nested, self.hyper, self.density, self.integrated, self.flat = nested, hyper, density, integrated, flat
        super().__init__(nested.central, hyper.source)
        self.fits, self.weights = nested.fits, nested.weights
        if not integrated:
            self.fitted_to = replace(self.fitted_to, tuned_prior=True)

    @cached_property
    def posterior(self) -> Any:
        """Mean and covariance of all free variables."""
        parts, inner = self.source.parts, self._given
        everything = np.arange(self.source.layout.dimension)
        return MixturePosterior(
            self.nested,
            np.concatenate([everything[parts[name]] for name in inner.names]),
            np.concatenate([everything[:0], *(everything[parts[rv.name]] for rv in self.hyper.hyper)]),
        )

    @property
    def log_evidence(self) -> float:
        """Log evidence of the whole model in nats; given the mode of the hyper-parameters, if they were maximised."""
        return self.nested.log_evidence

    @property
    def converged(self) -> bool:
        """Whether every fit converged, and the density of the hyper-parameters had fallen where their values end."""
        return super().converged and not self.nested.truncated

    @property
    def q(self) -> PlainEP:
        """Result of EP without corrections: the mixture of its Gaussians."""
        posterior = replace(self.posterior, exact=False)
        return PlainEP(posterior.mean, posterior.covariance, self.log_evidence)

    @cached_property
    def evidence(self) -> LogEvidence:
        """Log evidence of the whole model by importance weights, with their error; EP's own, NaN, where these fail."""
        try:
            log_weights, pareto_k = pareto_smooth(self._draw(DRAWS, np.random.default_rng(SEED), weighted=True)[2])
        except UnsupportedError:
            pareto_k = np.inf
        if not (self.converged and pareto_k <= LARGEST_K):
            return replace(combine(self.log_evidence, np.nan), agree=self.converged)
        estimate, error = log_mean(log_weights)
        return combine(estimate, error**2)

    @property
    def mean_risk(self) -> Estimate:
        """Expected risk, as an estimate."""
        return Estimate(self.expected_risk, 0.0)

    @property
    def divergence(self) -> Estimate:
        """NaN where hyper-parameters are integrated over: that of a mixture has no closed form; see ``certified``."""
        return Estimate(float("nan"), 0.0) if self.integrated else super().divergence

    @property
    def gaussian(self) -> bool:
        """Whether the posterior is one Gaussian."""
        return not self.integrated and super().gaussian

    @property
    def _inclusion(self) -> FloatArray:
        found = np.ones(self.source.layout.dimension)
        found[self.posterior.inner] = super()._inclusion
        return found

    @cached_property
    def hyper_posterior(self) -> xr.Dataset:
        """Values of the hyper-parameters, their weights, and the log evidence given them."""
        values = self.hyper.natural(self.nested.phi)
        found = {
            name: (("point", *(f"{name}_dim_{i}" for i in range(value.ndim - 1))), value)
            for name, value in zip(self.hyper.names, values, strict=True)
        }
        evidence = [each.log_evidence + each.problem.absorbed for each in self.nested.fits]
        return xr.Dataset({**found, "weight": ("point", self.nested.weights), "log_evidence": ("point", evidence)})

    @property
    def _given(self) -> ModelProblem:
        return self.hyper.source_at(self.nested.phi[0])

    def _draw(
        self, draws: int, rng: np.random.Generator, *, weighted: bool = False
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        nested, free = self.nested, self.source.free
        place = {name: np.arange(free.dimension)[part] for name, part in zip(free.names, free.slices, strict=True)}
        values, (risk, log_weights) = np.empty((draws, free.dimension)), np.empty((2, draws))
        chosen = rng.choice(nested.weights.size, size=draws, p=nested.weights)
        for k in np.unique(chosen):
            rows, fit = np.flatnonzero(chosen == k), nested.fits[k]
            source = self.hyper.source_at(nested.phi[k])
            drawn = self._draw_given(fit, fit.corrected, rows.size, rng, weighted=weighted)
            theta, risk[rows], log_weights[rows] = drawn
            inner = source.free_values(theta, rng)
            for name, part in zip(source.free.names, source.free.slices, strict=True):
                values[rows[:, None], place[name]] = inner[:, part]
        if outer := [k for value in self.hyper.layout.values for k in place[value.name]]:
            dirac = any(each.dirac for each in self.source.independent)  # indicators are drawn at the model's own p
            lattice = None if dirac else nested.lattice
            phi = nested.phi[chosen] if lattice is None else lattice.draw(chosen, rng)
            values[:, outer] = phi
        return values, risk, log_weights

    @property
    def _exact_means(self) -> tuple[Variable, ...]:
        return self.source.variables if self.score_function.linear else ()

    def _mean_points(self) -> tuple[xr.Dataset, FloatArray]:
        """Return all variables at the mean given each value of the hyper-parameters, as if draws, and weights.

        Scores are affine given the hyper-parameters: their mean is that of their values at these.
        """
        hyper = dict(zip(self.hyper.names, self.hyper.natural(self.nested.phi), strict=True))
        return self._as_draws(self.posterior.score_means, hyper), self.nested.weights

    @property
    def certified(self) -> Any:
        """What a certificate is of: see :func:`certified_mixture`."""
        return certified_mixture(self) if self.integrated else self

    def __repr__(self) -> str:
        what = "integrated over" if self.integrated else "at the mode of"
        hyper = self.hyper_posterior
        lines = [
            super().__repr__(),
            f"  hyper          {what} {', '.join(self.hyper.labels)}; {len(hyper['weight'])} points",
        ]
        for rv in self.hyper.hyper:  # components of a mixture have no mean
            mean = (hyper[rv.name] * hyper["weight"]).sum("point")
            sd = np.sqrt((hyper[rv.name] ** 2 * hyper["weight"]).sum("point") - mean**2)
            shown = zip(np.ravel(mean), np.ravel(sd), strict=True)
            lines.append(f"  {rv.name:<15}" + ", ".join(f"{m:.4g} (sd {s:.2g})" for m, s in shown))
        lines += [f"  unmoved        {each}: the posterior is the prior" for each in self.flat]
        return "\n".join(lines)

    __str__ = __repr__


def certified_mixture(approx: NestedApproximation) -> KnownResult:
    """Make the mixture over values of the hyper-parameters fixed before the data, for certificates.

    Points chosen with the data have no prior mass, so that a mixture over them has an infinite divergence from the
    prior. Here the hyper-parameters have K values, drawn from their prior by a fixed seed (its quantiles, if there is
    one hyper-parameter), each with prior mass p_k = 1 / K. With posterior weights w_k and EP's fits q_k given them,

        KL = sum_k w_k [KL(q_k, prior given k) + log(w_k / p_k)].

    A ValueError where EP converges at none of these values; some that it leaves out cost nothing but their weight.
    """
    hyper = approx.hyper
    listed = hyper.listed(hyper.conditional.problem_at)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nested = tune.integrate(replace(approx.density, conditional=listed, callback=None, points=[]))
    weights, masses = nested.weights, np.exp(listed.log_prior(nested.phi))
    divergence = nested.mean(lambda each: each.divergence) + special.xlogy(weights, weights / masses).sum()
    return KnownResult(
        approx.fitted_to,
        combine(nested.log_evidence, np.nan),
        Estimate(float(nested.mean(lambda each: each.expected_risk))),
        Estimate(float(divergence)),
        gaussian=False,
        caveat=approx.caveat,
        assumption=(
            f"Certifies the randomised score with the hyper-parameters ({', '.join(hyper.labels)}) at {len(weights)} "
            "values that were fixed by their prior alone, not at those that the fit chose."
        ),
    )


def fit_nested(
    hyper: HyperModel, method: str, how: str, *, progressbar: bool = True, **options: Any
) -> NestedApproximation:
    """Integrate over (``how="integrate"``) or maximise (``"maximize"``) the hyper-parameters of a model."""
    tolerance = max(options.pop("tolerance"), tune.TOLERANCE if how == "integrate" else 0.01 * tune.TOLERANCE)
    conditional = hyper.conditional
    columns = [TextColumn("log Z {task.fields[log_evidence]:.2f}")]
    with LateBar("Fits given hyper-parameters", *columns, show=progressbar) as bar:
        density = Density(
            conditional,
            method,
            options,
            tolerance,
            lambda point: bar.update(len(density.points), len(density.points) + 1, log_evidence=point.fit.log_evidence),
        )
        nested = tune.integrate(density) if how == "integrate" else tune.maximum(density)
    flat = [] if conditional.values is not None else tune.flat_directions(conditional.problem_at, nested.mode.phi)[0]
    said = tuple(dict.fromkeys(hyper.describe(direction) for direction in flat))
    for each in said:
        logger.info("The data cannot move %s: no ranking depends on it, and its posterior is its prior.", each)
    return NestedApproximation(nested, hyper, density, integrated=how == "integrate", flat=said)

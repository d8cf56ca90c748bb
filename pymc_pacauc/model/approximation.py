"""Expectation propagation and Gaussian variational Bayes through ``pm.fit(method=...)``.

PyMC's variational interface expects an :class:`Inference` that is fitted and an :class:`Approximation` that is sampled.
Here fitting is a call of the array engine on the problem extracted from the model, and the approximation is PyMC's
full-rank Gaussian with its mean and Cholesky factor set, plus what EP knows beyond it: the evidence, its gradient, the
expected risk, and importance weights towards the exact posterior.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
from numpy.typing import ArrayLike, NDArray
from pymc.util import get_random_generator
from pymc.variational.approximations import FullRankGroup, SingleGroupApproximation
from pymc.variational.inference import Inference
from pymc.variational.opvi import node_property
from pytensor.graph.traversal import ancestors
from rich.progress import TextColumn

from pymc_pacauc.core.risk import LinearRisk
from pymc_pacauc.ep.fixed_point import Interventions
from pymc_pacauc.ep.gaussian import EPFit, GaussianPosterior, fit_ep, fit_vb
from pymc_pacauc.ep.gradient import EvidenceGradient, evidence_gradient
from pymc_pacauc.ep.importance import importance_draws, log_mean
from pymc_pacauc.ep.leave_out import LeaveOut, leave_out_sites
from pymc_pacauc.ep.sparse.fit import fit_spike_slab
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.model.extract import extract
from pymc_pacauc.model.flat import flat_variables
from pymc_pacauc.model.idata import attributes, draws_to_inference_data
from pymc_pacauc.model.predictive import HeldData
from pymc_pacauc.model.progress import LateBar
from pymc_pacauc.model.spike_slab import extract_spike_slab

__all__ = ["EP", "EPApproximation", "GaussianVB", "ImportanceSample", "leave_out"]


class _GaussianGroup(FullRankGroup):
    """PyMC's full-rank Gaussian, its Cholesky factor set directly instead of through a softplus."""

    __param_spec__ = {"mu": ("d",), "chol": ("d", "d")}  # noqa: RUF012
    short_name = "pacauc_gaussian"
    alias_names: frozenset[str] = frozenset()

    posterior: GaussianPosterior | None = None

    def create_shared_params(self, start=None):
        mean = np.asarray(self._prepare_start(start), dtype=pytensor.config.floatX)
        return {"mu": pytensor.shared(mean, "mu"), "chol": pytensor.shared(np.eye(mean.size, dtype=mean.dtype), "chol")}

    @node_property
    def L(self):
        if self.posterior is not None:  # not before it is asked for: O(d^3)
            factor = np.linalg.cholesky(self.posterior.covariance)
            self.shared_params["chol"].set_value(factor.astype(pytensor.config.floatX))
        return self.params_dict["chol"]


@dataclass(frozen=True, eq=False)
class ImportanceSample:
    """Draws of the approximation weighted towards the exact posterior.

    Attributes
    ----------
    idata
        The draws, with ``log_weight`` (smoothed, normalised to mean one) and ``risk`` in sample_stats.
    pareto_k
        Shape of the weights' tail: below 0.5 the weighted draws can be trusted, above 0.7 they cannot.
    effective_draws
        Effective sample size of the weights.
    log_evidence, log_evidence_se
        Corrected log evidence and its standard error.
    """

    idata: Any
    pareto_k: float
    effective_draws: float
    log_evidence: float
    log_evidence_se: float

    def resample(self, draws: int = 1000, random_seed: Any = None) -> Any:
        """Unweighted draws of the exact posterior: the weighted ones, resampled with replacement."""
        log_weights = self.idata["sample_stats"]["log_weight"].values[0]
        weights = np.exp(log_weights)
        index = get_random_generator(random_seed).choice(weights.size, size=draws, p=weights / weights.sum())
        posterior = self.idata["posterior"]
        posterior = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior
        return posterior.isel(draw=index).assign_coords(draw=np.arange(draws))

    def __repr__(self) -> str:
        return (
            f"ImportanceSample(log_evidence={self.log_evidence:.3f} ± {self.log_evidence_se:.3f}, "
            f"effective_draws={self.effective_draws:.0f}, pareto_k={self.pareto_k:.2f})"
        )


class EPApproximation(SingleGroupApproximation):
    """A Gaussian approximation of the AUC Gibbs posterior, with PyMC's interface and EP's by-products.

    It is over the free variables that the model had when it was fitted, and its draws are those of the model with the
    ``pm.Data`` of that time: the model may get other data, and other variables (``gp.conditional``), afterwards.

    Attributes
    ----------
    posterior
        ``.mean`` and ``.covariance``, NumPy arrays over the flat free variables in the model's order.
    log_evidence
        EP's approximation of log Z (for variational Bayes, the lower bound).
    expected_risk
        Expectation of the pair risk under the approximation, in closed form.
    converged, sweeps, history, interventions
        How the fit went; ``history`` is a DataFrame with a row per sweep.
    """

    _group_class = _GaussianGroup

    def __init__(self, fit: EPFit, method: str, model: pm.Model):
        super().__init__(model=model)
        self.fit = fit
        self.method = method
        self._variables = flat_variables(model)
        self._data = HeldData.of(model)
        group = self.groups[0]
        group.shared_params["mu"].set_value(fit.posterior.mean.astype(pytensor.config.floatX))
        group.posterior = fit.posterior

    @property
    def posterior(self) -> GaussianPosterior:
        return self.fit.posterior

    @property
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    def expected_risk(self) -> float:
        return self.fit.expected_risk

    @property
    def converged(self) -> bool:
        return self.fit.converged

    @property
    def sweeps(self) -> int:
        return self.fit.sweeps

    @property
    def interventions(self) -> Interventions:
        return self.fit.interventions

    @property
    def history(self) -> pd.DataFrame:
        return pd.DataFrame(list(self.fit.history)).set_index("sweep")

    @property
    def hist(self) -> NDArray[np.float64]:
        """Minus the log evidence after each sweep: PyMC's name for the trace of the loss."""
        return -self.history["log_evidence"].to_numpy()

    @property
    def variable_names(self) -> tuple[str, ...]:
        """The variables that ``posterior`` is over, in its order."""
        return self._variables.names

    def function(self, graph: Any) -> Callable[[NDArray[np.float64]], list[NDArray[Any]]]:
        """f(theta[N, D]) -> [graph[N, ...]] for an expression of the model, theta in the order of ``posterior``.

        The function reads the model's ``pm.Data`` when it is called; ``with approx.as_fitted():`` has them as they
        were.
        """
        outputs = self.model.replace_rvs_by_values([graph])
        unknown = (set(self.model.value_vars) - set(self._variables.values)) & set(ancestors(outputs))
        if unknown:
            names = ", ".join(sorted(self.model.values_to_rvs[value].name for value in unknown))
            raise ValueError(f"The expression depends on {names}, which the model did not have when it was fitted.")
        return self._variables.function(outputs)

    def as_fitted(self) -> AbstractContextManager[None]:
        """A block within which the model's ``pm.Data`` and coords are those of the fit."""
        return self._data.held_by(self.model)

    def evidence_gradient(self) -> EvidenceGradient:
        """Derivatives of ``log_evidence`` with respect to the prior mean and covariance of the flat free variables."""
        return evidence_gradient(self.fit)

    def sample(
        self, draws: int = 500, *, random_seed: Any = None, return_inferencedata: bool = True, **kwargs: Any
    ) -> Any:
        """Independent draws of all variables and Deterministics, as ArviZ data."""
        if not return_inferencedata:
            return super().sample(draws, random_seed=random_seed, return_inferencedata=False, **kwargs)
        theta = self.posterior.draw(draws, get_random_generator(random_seed))
        problem = self.fit.problem
        risk = LinearRisk(problem.X, problem.pairs, offset=problem.offset, ties=problem.ties)(theta)
        return self._inference_data(theta, {"risk": risk}, self._attributes(**self._certified_by()))

    def _inference_data(self, theta: NDArray[np.float64], stats: dict[str, Any], attrs: dict[str, Any]) -> Any:
        with self.as_fitted():
            return draws_to_inference_data(
                self.model,
                theta[None],
                variables=self._variables,
                sample_stats={name: value[None] for name, value in stats.items()},
                attrs=attrs,
            )

    def importance_sample(self, draws: int = 1000, *, random_seed: Any = None) -> ImportanceSample:
        """Draws weighted by exact posterior / approximation, Pareto-smoothed, and the evidence they estimate.

        For scores without an offset only directions are weighted and the length is drawn from its exact law, so
        the draws are not those of :meth:`sample`.
        """
        weighted = importance_draws(self.fit, draws, get_random_generator(random_seed))
        log_weights, pareto_k = pareto_smooth(weighted.log_weights)
        log_evidence, error = log_mean(log_weights)
        if pareto_k > 0.7:
            warnings.warn(
                f"The importance weights have Pareto k = {pareto_k:.2f} > 0.7: their averages, the corrected evidence "
                "included, are unreliable. Use pm.sample(step=pac.TemperingSMC(start=approx)).",
                stacklevel=2,
            )
        relative = np.exp(log_weights - log_evidence)
        stats = {"log_weight": log_weights - log_evidence, "risk": weighted.risk}
        attrs = self._attributes(pareto_k=pareto_k, log_evidence=log_evidence, log_evidence_se=error)
        idata = self._inference_data(weighted.theta, stats, attrs)
        return ImportanceSample(idata, pareto_k, float(draws / np.mean(relative**2)), log_evidence, error)

    def _certified_by(self) -> dict[str, Any]:
        """What a certificate needs, so that it can be computed from draws read from a file."""
        problem = self.fit.problem
        if problem.ties != "half" or not self.converged or len(problem.pairs.blocks) != 1:
            return {}
        [block] = problem.pairs.blocks
        sizes = {"n_pos": block.positive.size, "n_neg": block.negative.size, "d": problem.d}
        return {"divergence": self.posterior.divergence_from_prior, **sizes}

    def _attributes(self, **more: Any) -> dict[str, Any]:
        stated = {"log_evidence": self.log_evidence, "expected_risk": self.expected_risk, "converged": self.converged}
        return attributes(self.method, self.fit.problem.gamma, **{**stated, **more})

    def __repr__(self) -> str:
        problem = self.fit.problem
        acted = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in vars(self.interventions).items() if v)
        return "\n".join(
            [
                f"{self.method} approximation of an AUC Gibbs posterior",
                f"  observations   {problem.n} ({problem.pairs.n_pairs} pairs), {problem.d} free parameters",
                f"  gamma          {problem.gamma:g}",
                f"  log evidence   {self.log_evidence:.4f}",
                f"  expected AUC   {1 - self.expected_risk:.4f} (training)",
                f"  {'converged' if self.converged else 'NOT CONVERGED'} in {self.sweeps} sweeps"
                + (f" ({acted})" if acted else ""),
            ]
        )

    __str__ = __repr__


class EP(Inference):
    """Expectation propagation, for ``pm.fit(method=pac.EP())``.

    Works for any model whose scores are affine in Gaussian variables or in a :func:`~pymc_pacauc.SpikeSlab` variable; a
    model that is not is refused with the variable and the reason.

    Parameters
    ----------
    power
        1 for EP; smaller for fractional EP.
    start
        An earlier approximation to begin from, for example at another gamma.
    tolerance
        Relative change of the natural parameters at which to stop.
    max_sweeps
        Sweeps after which to give up, with a warning.
    threads
        Threads, by default one per core.
    model
        The model; by default the one on the context stack when :meth:`fit` is called.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> import pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP())
    >>> approx.converged
    True
    """

    name = "EP"

    def __init__(
        self,
        *,
        power: float = 1.0,
        start: EPApproximation | None = None,
        tolerance: float = 1e-6,
        max_sweeps: int = 200,
        threads: int | None = None,
        model: pm.Model | None = None,
    ):
        # No super().__init__: there is no operator or objective to optimise.
        self.hist: NDArray[np.float64] = np.empty(0)
        self.state = None
        self.model = model
        self.start = start
        self.options: dict[str, Any] = {"tolerance": tolerance, "max_sweeps": max_sweeps, "threads": threads}
        self.engine_options: dict[str, Any] = {"power": power}
        self._approx: EPApproximation | None = None

    @property
    def approx(self) -> EPApproximation | None:
        return self._approx

    def fit(
        self, n: int = 10_000, score=None, callbacks=None, progressbar: bool = True, **kwargs: Any
    ) -> EPApproximation:
        """Fit the model; ``n`` bounds the number of sweeps together with ``max_sweeps``."""
        model = pm.modelcontext(self.model)
        sparse = extract_spike_slab(model)
        problem: Any
        engine: Any
        if sparse is None:
            problem, engine, engine_options = extract(model).problem, self.engine, self.engine_options
        elif self.engine_options == {"power": 1.0}:
            problem, engine, engine_options = sparse.problem, fit_spike_slab, {}
        else:
            raise ValueError("A SpikeSlab prior needs plain EP: pm.fit(method=pac.EP()).")
        options = {**self.options, "max_sweeps": min(n, self.options["max_sweeps"])}
        columns = [
            TextColumn("change {task.fields[change]:.1e}"),
            TextColumn("log Z {task.fields[log_evidence]:.2f}"),
            TextColumn("E[risk] {task.fields[expected_risk]:.4f}", markup=False),
        ]
        with LateBar(f"{self.name} sweeps", *columns, show=progressbar) as bar:
            fit = engine(
                problem,
                start=None if self.start is None else self.start.fit,
                callback=lambda record: bar.update(int(record["sweep"]), options["max_sweeps"], **record),
                **options,
                **engine_options,
            )
        if sparse is None:
            self._approx = EPApproximation(fit, self.name, model)
        else:
            from pymc_pacauc.model.sparse_approximation import SpikeSlabApproximation  # a subclass of this file's

            self._approx = SpikeSlabApproximation(fit, sparse, self.name, model)
        self.hist = self._approx.hist
        for callback in callbacks or ():
            callback(self._approx, self.hist, len(self.hist))
        return self._approx

    engine: Any = staticmethod(fit_ep)

    def refine(self, n: int, progressbar: bool = True) -> EPApproximation:
        """Go on from where the last fit ended."""
        self.start = self._approx
        return self.fit(n, progressbar=progressbar)


class GaussianVB(EP):
    """The best Gaussian in the variational sense, for ``pm.fit(method=pac.GaussianVB())``.

    Maximises ``-gamma E_q[risk] - KL(q, prior)``, both in closed form; ``log_evidence`` is that bound. The parameters
    are those of :class:`EP`, without ``power``: this is EP's limit of power zero.
    """

    name = "GaussianVB"
    engine = staticmethod(fit_vb)

    def __init__(
        self,
        *,
        start: EPApproximation | None = None,
        tolerance: float = 1e-6,
        max_sweeps: int = 200,
        threads: int | None = None,
        model: pm.Model | None = None,
    ):
        super().__init__(start=start, tolerance=tolerance, max_sweeps=max_sweeps, threads=threads, model=model)
        self.engine_options = {}


def leave_out(
    approx: EPApproximation,
    groups: ArrayLike | None = None,
    *,
    refine: int | None = None,
    threads: int | None = None,
    progressbar: bool = True,
) -> LeaveOut:
    """Cross-validated scores of every observation, by removing the sites of its pairs from the fit.

    Parameters
    ----------
    approx
        Result of ``pm.fit(method=pac.EP())``.
    groups
        Group label of each observation for k-fold or grouped cross-validation; by default each is left out alone.
    refine
        Sweeps over the remaining pairs after the removal: 0 is cheapest; by default 3 for groups, which is usually as
        good as a new fit, and 1 for single observations.
    threads
        Threads, by default one per core.
    progressbar
        Show a progress bar if it takes longer than a moment.

    Returns
    -------
    :class:`~pymc_pacauc.ep.leave_out.LeaveOut`, with the scores, the cross-validated AUC and an error indicator.
    """
    with LateBar("leaving out", show=progressbar) as bar:
        return leave_out_sites(approx.fit, groups, refine=refine, threads=threads, callback=bar.update)

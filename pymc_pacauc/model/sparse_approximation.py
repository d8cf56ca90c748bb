"""What ``pm.fit(method=pac.EP())`` returns for a model with a SpikeSlab prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import NDArray
from pymc.util import get_random_generator
from pymc.variational.approximations import SingleGroupApproximation

from pymc_pacauc.ep.sparse.fit import SpikeSlabFit
from pymc_pacauc.ep.sparse.model_average import ModelAverage
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.flat import flat_variables
from pymc_pacauc.model.idata import draws_to_inference_data
from pymc_pacauc.model.predictive import HeldData
from pymc_pacauc.model.spike_slab import ExtractedSpikeSlab, labelled

__all__ = ["SpikeSlabApproximation"]

FloatArray = NDArray[np.float64]


class SpikeSlabApproximation(EPApproximation):
    """A Gaussian over the coefficients with a Bernoulli inclusion for each, with PyMC's interface.

    ``posterior.mean`` and ``posterior.covariance`` are over the SpikeSlab variables, then the others. Beyond
    :class:`EPApproximation` it has ``inclusion_probability`` and ``expected_model_size``: exact up to the error that
    ``model_average`` states for up to ten coefficients, EP's beyond. Draws have EP's marginals, and the Gaussian's
    dependence; with a Dirac spike they contain exact zeros.
    """

    fit: Any  # a SpikeSlabFit

    def __init__(self, fit: SpikeSlabFit, extracted: ExtractedSpikeSlab, method: str, model: pm.Model):
        SingleGroupApproximation.__init__(self, model=model)
        self.fit = fit
        self.method = method
        self.extracted = extracted
        self._variables = flat_variables(model)
        self._data = HeldData.of(model)
        if not self._dirac:
            group, order = self.groups[0], self._order()
            mean = fit.posterior.mean[order]
            factor = np.linalg.cholesky(fit.posterior.covariance[np.ix_(order, order)])
            group.shared_params["mu"].set_value(mean.astype(pytensor.config.floatX))
            group.shared_params["chol"].set_value(factor.astype(pytensor.config.floatX))

    @property
    def inclusion_probability(self) -> xr.DataArray | dict[str, xr.DataArray]:
        """Probability of the slab for each coefficient (by variable, when there are several SpikeSlab variables)."""
        found = {
            variable.name: labelled(self.model, variable, self.fit.inclusion_probability[part])
            for variable, part in self.extracted.parts
            if hasattr(variable.tag, "spike_slab")
        }
        return next(iter(found.values())) if len(found) == 1 else found

    @property
    def model_average(self) -> ModelAverage | None:
        """Where ``inclusion_probability`` comes from, with its standard error; None if it is EP's."""
        return self.fit.model_average

    @property
    def expected_model_size(self) -> float:
        """Expected number of coefficients from the slab."""
        return float(
            sum(
                self.fit.inclusion_probability[part].sum()
                for v, part in self.extracted.parts
                if v in self.extracted.sparse
            )
        )

    def sample(
        self, draws: int = 500, *, random_seed: Any = None, return_inferencedata: bool = True, **kwargs: Any
    ) -> Any:
        """Independent draws of all variables and Deterministics, as ArviZ data."""
        if not return_inferencedata:
            raise NotImplementedError("Draws under a SpikeSlab prior come as InferenceData only.")
        rng = get_random_generator(random_seed)
        theta = self.fit.posterior.draw(draws, rng)
        slab, latent = self.fit.posterior.slab_and_latent(theta, rng)
        flat = np.empty((draws, self._variables.dimension))
        place = dict(zip(self._variables.names, self._variables.slices, strict=True))
        for variable, part in self.extracted.parts:
            prior = getattr(variable.tag, "spike_slab", None)
            if prior is None or not prior.dirac:
                flat[:, place[self.model.rvs_to_values[variable].name]] = theta[:, part]
                continue
            flat[:, place[self.model.rvs_to_values[prior.slab].name]] = slab[:, part]
            flat[:, place[self.model.rvs_to_values[prior.latent].name]] = latent[:, part]
        return draws_to_inference_data(self.model, flat[None], attrs=self._attributes())

    @property
    def variable_names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable, _ in self.extracted.parts)

    def function(self, graph: Any) -> Any:
        return self.extracted.function(graph)

    def evidence_gradient(self) -> Any:
        raise NotImplementedError("The evidence gradient is for Gaussian priors; compare log_evidence over p and v0.")

    def importance_sample(self, draws: int = 1000, *, random_seed: Any = None) -> Any:
        raise NotImplementedError(
            "Weighted draws are for Gaussian priors; see model_average, or pm.sample(step=pac.TemperingSMC())."
        )

    @property
    def _dirac(self) -> bool:
        return any(v.tag.spike_slab.dirac for v in self.extracted.sparse)

    def _order(self) -> NDArray[np.intp]:
        """Position, in the fit's theta, of each of the model's flat free parameters."""
        start = {self.model.rvs_to_values[v].name: part for v, part in self.extracted.parts}
        return np.concatenate([np.arange(self.fit.problem.d)[start[name]] for name in self._variables.names])

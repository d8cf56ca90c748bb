"""Reading the tempering path out of what ``pm.sample(step=pac.TemperingSMC())`` returns.

Tempering from the prior passes through the posterior at every gamma below the target's. The step method leaves the
record of its stages in ``sample_stats`` (see :mod:`pymc_pacauc.model.step`); the functions here turn it into labelled
arrays, an evidence with its error bar, and posteriors at other temperatures.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from pymc_pacauc.core.weights import effective_sample_size, normalise, systematic
from pymc_pacauc.model.idata import posterior_dataset
from pymc_pacauc.smc.diagnose import TemperingWarning
from pymc_pacauc.smc.evidence import LogEvidence, combine

__all__ = ["at_gamma", "log_evidence", "tempering_path"]

FloatArray = NDArray[np.float64]

PATH_VARIABLES = (
    "gamma",
    "temperature",
    "log_evidence",
    "log_evidence_variance",
    "ess",
    "acceptance_rate",
    "moves",
    "correlation",
    "expected_risk",
    "failed",
)
FEW_PARTICLES = 100  # an effective sample size below this is worth a warning


def tempering_path(idata: Any) -> xr.Dataset:
    """The stages of every chain, as a Dataset with dimensions (chain, stage).

    Stage 0 is the start. Chains of fewer stages are padded with NaN at the end. Variables: ``gamma``,
    ``temperature`` (gamma, or the fraction of the way from a fit), ``log_evidence`` and its variance, ``ess``,
    ``acceptance_rate``, ``moves``, ``correlation`` left with the start of the stage, ``expected_risk``, ``failed``
    (log-densities that could not be computed).

    Parameters
    ----------
    idata
        What ``pm.sample(step=pac.TemperingSMC())`` returned, or the same read from a file.
    """
    stats = _sample_stats(idata)
    last = stats["stage"].values[:, 0].astype(int)  # the number of stages after the start
    size = int(last.max()) + 1
    available = min(stats.sizes["draw"], size)
    if available < size:
        warnings.warn(
            f"There are {size} stages but only {stats.sizes['draw']} draws, and a draw carries the record of one "
            "stage: the first stages are missing. Draw more to see them.",
            TemperingWarning,
            stacklevel=2,
        )
    columns = {}
    for name in PATH_VARIABLES:
        values = np.full((len(last), size), np.nan)
        recorded = stats[f"path_{name}"].values
        for chain, top in enumerate(last):
            count = min(available, top + 1)
            values[chain, top - np.arange(count)] = recorded[chain, :count]  # draw i: the i-th stage from the end
        columns[name] = (("chain", "stage"), values)
    return xr.Dataset(columns, coords={"chain": stats["chain"].values, "stage": np.arange(size)})


def log_evidence(idata: Any) -> LogEvidence:
    """Log evidence of the model at its gamma, with a standard error.

    Each chain estimates the evidence without bias, and its own variance from its particles; chains are averaged. When
    they disagree by more than their variances allow, a :class:`TemperingWarning` says so and the standard error is
    taken from the disagreement instead.
    """
    stats = _sample_stats(idata)
    result = combine(stats["path_log_evidence"].values[:, 0], stats["path_log_evidence_variance"].values[:, 0])
    if not result.agree:
        warnings.warn(
            f"Independent chains disagree about the log evidence: their standard deviation is {result.between:.2f} "
            f"where {result.within:.2f} was expected. At least one did not explore the posterior. Start from a fit "
            "(start=), or use more particles or moves.",
            TemperingWarning,
            stacklevel=2,
        )
    return result


def at_gamma(idata: Any, gamma: float, *, model: pm.Model | None = None, random_seed: Any = None) -> xr.Dataset:
    """A posterior at another gamma, up to the one sampled, by reweighting the particles of the nearest stage.

    Parameters
    ----------
    idata
        What ``pm.sample(step=pac.TemperingSMC(keep_particles=True))`` returned. Without ``keep_particles`` there are
        only the draws at the final gamma to reweight, which serves gammas close to it.
    gamma
        Between 0 (the prior) and the gamma sampled.
    model
        The model, to name and transform kept particles; by default the one on the context stack. Not needed without
        kept particles.
    random_seed
        For resampling.

    Returns
    -------
    Dataset like ``idata.posterior``, equally weighted draws, with ``particle_ess`` of each chain's weights and the
    ``stage_gamma`` they were taken from.
    """
    stats = _sample_stats(idata)
    top = float(stats["gamma"].values[0, 0])
    if not 0.0 <= gamma <= top:
        raise ValueError(f"gamma must lie between 0 and the gamma sampled, {top:g}; got {gamma}.")
    rng = np.random.default_rng(random_seed)
    kept = "path_particles" in stats
    index, ess, stage_gamma, stages = [], [], [], []
    for chain in range(stats.sizes["chain"]):
        slot, source, log_weights = _nearest(stats, chain, gamma, kept)
        usable = ~np.isnan(log_weights)
        weights = np.zeros(len(log_weights))
        weights[usable] = normalise(log_weights[usable])
        index.append(rng.permutation(systematic(weights, len(weights), rng)))
        ess.append(effective_sample_size(log_weights[usable]))
        stage_gamma.append(source)
        stages.append(slot)
    if min(ess) < FEW_PARTICLES:
        advice = "Use more particles." if kept else "Sample with TemperingSMC(keep_particles=True)."
        warnings.warn(
            f"Reweighting to gamma = {gamma:g} leaves an effective sample of {min(ess):.0f} draws in a chain. {advice}",
            TemperingWarning,
            stacklevel=2,
        )
    if kept:
        particles = stats["path_particles"].values
        flat = np.stack([particles[c, index[c], stages[c]] for c in range(len(index))])
        posterior = posterior_dataset(pm.modelcontext(model), flat)
        posterior = posterior.assign_coords(chain=stats["chain"].values)
    else:
        draws = idata["posterior"]
        draws = draws.to_dataset() if hasattr(draws, "to_dataset") else draws
        chosen = [draws.isel(chain=c, draw=i).assign_coords(draw=draws["draw"].values) for c, i in enumerate(index)]
        posterior = xr.concat(chosen, dim="chain")
    return posterior.assign(
        particle_ess=("chain", np.array(ess)), stage_gamma=("chain", np.array(stage_gamma))
    ).assign_attrs(gamma=gamma)


def _sample_stats(idata: Any) -> xr.Dataset:
    try:
        stats = idata["sample_stats"]
    except (KeyError, TypeError):
        stats = {}
    if "path_gamma" not in stats:
        raise ValueError("there is no tempering path here: sample with pm.sample(step=pac.TemperingSMC()).")
    return stats.to_dataset() if hasattr(stats, "to_dataset") else stats


def _nearest(stats: xr.Dataset, chain: int, gamma: float, kept: bool) -> tuple[int, float, FloatArray]:
    """Slot, gamma and log-weights (NaN where there is no particle) of the stage with the largest ESS at ``gamma``."""
    if not kept:
        top = float(stats["gamma"].values[chain, 0])
        return 0, top, (gamma - top) * stats["log_tilt"].values[chain]
    gammas = stats["path_kept_gamma"].values[chain, 0]
    best: tuple[float, int, FloatArray] | None = None
    for slot in np.flatnonzero(~np.isnan(gammas)):
        log_weights = (gamma - gammas[slot]) * stats["path_tilt"].values[chain, :, slot]
        size = effective_sample_size(log_weights[~np.isnan(log_weights)])
        if best is None or size > best[0]:
            best = (size, int(slot), log_weights)
    if best is None:
        raise ValueError("no particles were kept.")
    return best[1], float(gammas[best[1]]), best[2]

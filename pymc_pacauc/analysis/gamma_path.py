"""Read the tempering path from the draws of ``pm.sample(step=pac.TemperingSMC())``.

Tempering from the prior passes through the posterior at every gamma below the target's. The step method stores the
record of one stage with each draw (:mod:`pymc_pacauc.model.step`); the functions here collect it from the draws that
are left: labelled arrays by stage, the log evidence with its error, and posteriors at other gammas by reweighting.
"""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_pacauc.model.idata import posterior_dataset
from pymc_pacauc.model.results import Draws, as_result, dataset_of
from pymc_pacauc.numerics import FloatArray, effective_sample_size, normalise, systematic
from pymc_pacauc.smc.log_evidence import LogEvidence
from pymc_pacauc.smc.tempering import Stage, TemperingWarning


def tempering_path(idata: Any) -> xr.Dataset:
    """Collect the stages of every run of tempering SMC.

    Stage 0 is the start. Runs of fewer stages are padded with NaN at the end.

    Parameters
    ----------
    idata : InferenceData or DataTree
        Result of ``pm.sample(step=pac.TemperingSMC())``, or the same sliced, concatenated or read from a file. A
        draw carries one stage: where too few draws are left, the stages that are missing are named in a
        :class:`~pymc_pacauc.results.TemperingWarning` and NaN.

    Returns
    -------
    xarray.Dataset
        Over (chain, stage): ``gamma``, ``temperature`` (gamma, or the fraction of the way from a fit), ``log_evidence``
        (nats) and its variance, ``ess``, ``acceptance_rate``, ``moves``, ``correlation`` left with the start of the
        stage, ``expected_risk``, ``failed`` (log-densities that could not be computed).

    Raises
    ------
    ValueError
        If ``idata`` has no tempering path.
    TypeError
        If ``idata`` is not of a kind described above.

    Warns
    -----
    TemperingWarning
        Where too few draws are left to hold all stages.

    See Also
    --------
    log_evidence : Log evidence at the final gamma.
    pymc_pacauc.plots.plot_tempering : Draw the stages.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", np.array([[0.0], [1.0], [2.0]]) @ theta, [0, 0, 1], gamma=4.0)
    ...     step = pac.TemperingSMC(particles=200)
    ...     idata = pm.sample(200, step=step, chains=1, cores=1, random_seed=1, progressbar=False)
    >>> path = pac.tempering_path(idata)
    >>> float(path["gamma"][0, 0]), float(path["gamma"].max())
    (0.0, 4.0)
    """
    tempering = _tempering(idata)
    assert tempering.fitted_to  # raises, with what differs, where draws of several fits are joined
    found, missing = [], []
    for k, run in enumerate(tempering.runs()):
        every, (stages, first) = np.arange(int(run["stage"][0]) + 1), np.unique(run["path_stage"], return_index=True)
        columns = {each.name: ("stage", run[f"path_{each.name}"][first].astype(float)) for each in fields(Stage)}
        found.append(xr.Dataset(columns, {"stage": stages}).reindex(stage=every))
        missing += [f"{stage} of chain {k}" for stage in np.setdiff1d(every, stages)]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"idata has no record of {len(missing)} stage(s) ({shown}), which are NaN: each draw stores the record of "
            "one stage. Pass all draws, or draw more.",
            TemperingWarning,
            stacklevel=2,
        )
    return xr.concat(found, "chain", join="outer").assign_coords(chain=np.arange(len(found)))


def log_evidence(idata: Any) -> LogEvidence:
    """Estimate the log evidence of the model at its gamma, with a standard error.

    Each run estimates the evidence without bias, and its own variance from its particles; runs are averaged. When they
    disagree by more than their variances allow, the standard error is taken from the disagreement instead. The log
    evidence of an approximation is returned with its standard error, NaN where that is not known.

    Parameters
    ----------
    idata : InferenceData, DataTree, approximation or fit
        Result of ``pm.sample(step=pac.TemperingSMC())``, or any part of it: every draw has its run's evidence.

    Returns
    -------
    LogEvidence
        ``estimate`` and ``standard_error``, in nats.

    Raises
    ------
    TypeError
        If ``idata`` is not of a kind described above.

    Warns
    -----
    TemperingWarning
        If runs disagree by more than their own variances allow.

    See Also
    --------
    tempering_path : Evidence at every gamma on the way.
    compare : Compare models by their evidence.

    Examples
    --------
    The exact value is log((exp(-1) + exp(-3)) / 2) = -1.57.

    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     X = np.array([[0.0], [1.0], [2.0], [3.0]])
    ...     auc = pac.AUCPotential("auc", X @ theta, [0, 1, 0, 1], gamma=4.0)
    ...     step = pac.TemperingSMC(particles=500)
    ...     idata = pm.sample(100, step=step, chains=1, cores=1, random_seed=1, progressbar=False)
    >>> found = pac.log_evidence(idata)
    >>> bool(abs(found.estimate + 1.57) < 0.1), bool(found.standard_error < 0.1)
    (True, True)
    """
    result = as_result(idata, "idata").evidence
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
    """Compute the posterior at another gamma, up to the one sampled, by reweighting the particles of the nearest stage.

    Parameters
    ----------
    idata : InferenceData or DataTree
        Result of ``pm.sample(step=pac.TemperingSMC(keep_particles=True))``. Without ``keep_particles`` there are
        only the draws at the final gamma to reweight, which serves gammas close to it.
    gamma : float
        Between 0 (the prior) and the gamma sampled.
    model : pymc.Model, optional
        The model, to name and transform kept particles; by default the one on the context stack. Not needed without
        kept particles.
    random_seed : int, Generator or None, optional
        For resampling.

    Returns
    -------
    xarray.Dataset
        Like ``idata.posterior``: equally weighted draws, with ``particle_ess`` of each chain's weights and the
        ``stage_gamma`` they were taken from.

    Raises
    ------
    ValueError
        If ``gamma`` is not between 0 and the gamma sampled, or posterior and sample_stats are not both there.
    TypeError
        If ``idata`` is not of a kind described above.

    Warns
    -----
    TemperingWarning
        Where the effective number of draws at ``gamma`` is small.

    See Also
    --------
    tempering_path : The gammas of the stages.
    select_gamma : Choose gamma.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", np.array([[0.0], [1.0], [2.0]]) @ theta, [0, 0, 1], gamma=4.0)
    ...     step = pac.TemperingSMC(particles=200, keep_particles=True)
    ...     idata = pm.sample(200, step=step, chains=1, cores=1, random_seed=1, progressbar=False)
    >>> pac.at_gamma(idata, 2.0, model=model, random_seed=1)["theta"].shape
    (1, 200, 1)
    """
    stats, posterior = _tempering(idata).stats, dataset_of(idata, "posterior")
    if posterior is None or not {"chain", "draw"} <= set(stats.dims):
        raise ValueError(
            "idata must have the groups posterior and sample_stats, both with dimensions (chain, draw); got "
            f"{'no posterior' if posterior is None else tuple(stats.dims)}."
        )
    if any(posterior.sizes[dim] != stats.sizes[dim] for dim in ("chain", "draw")):
        raise ValueError("idata has different draws in posterior and sample_stats: select idata.sel(draw=...) of both.")
    top = as_result(idata, "idata").fitted_to.gamma
    if not 0.0 <= gamma <= top:
        raise ValueError(f"gamma must lie between 0 and the gamma sampled, {top:g}; got {gamma}.")
    rng = np.random.default_rng(random_seed)
    kept = "path_particles" in stats
    if kept and model is None and pm.Model.get_context(error_if_none=False) is None:
        raise ValueError("idata has particles kept as flat vectors: pass model=, or call inside `with model:`.")
    nearest = [_nearest(stats.isel(chain=chain), gamma, top, kept) for chain in range(stats.sizes["chain"])]
    slots, sources, log_weights = zip(*nearest, strict=True)
    index = [rng.permutation(systematic(normalise(each), each.size, rng)) for each in log_weights]
    ess = list(map(effective_sample_size, log_weights))
    if min(ess) < 100:  # means are then known to a tenth of a posterior standard deviation at best
        advice = "Use more particles." if kept else "Sample with TemperingSMC(keep_particles=True)."
        warnings.warn(
            f"Reweighting to gamma = {gamma:g} leaves an effective sample of {min(ess):.0f} draws in a chain. {advice}",
            TemperingWarning,
            stacklevel=2,
        )
    if kept:
        particles = stats["path_particles"].transpose("chain", "draw", ...).values
        flat = np.stack([particles[c, i, slots[c]] for c, i in enumerate(index)])
        found = posterior_dataset(pm.modelcontext(model), flat).assign_coords(chain=stats["chain"].values)
    else:
        draw = posterior["draw"].values
        chosen = [posterior.isel(chain=c, draw=i).assign_coords(draw=draw) for c, i in enumerate(index)]
        found = xr.concat(chosen, dim="chain")
    carried = as_result(idata, "idata").score_function
    if carried is not None:
        found = found.assign_coords(carried.as_coords())
    columns = {"particle_ess": ess, "stage_gamma": list(sources)}
    return found.assign({name: ("chain", values) for name, values in columns.items()}).assign_attrs(gamma=gamma)


def _tempering(idata: Any) -> Draws:
    result = as_result(idata, "idata")
    if not isinstance(result, Draws) or "path_stage" not in result.stats:
        raise ValueError(
            "idata has no tempering path: pass the result of pm.sample(step=pac.TemperingSMC()). For an approximation "
            "at another gamma, set the model's gamma and fit again."
        )
    return result


def _nearest(stats: xr.Dataset, gamma: float, top: float, kept: bool) -> tuple[int, float, FloatArray]:
    """Find the stage with the nearest gamma: its slot, its gamma, and log weights (-inf: no particle).

    Not the one with the largest ESS: a stage whose sample happens to be too large in some direction has it.
    """
    if not kept:  # the last stage, whose particles are the draws
        return 0, top, (gamma - top) * stats["log_tilt"].values
    if np.unique(stats["run"].values).size > 1:
        raise ValueError("idata has draws of several runs in one chain, with stages of their own: pass one run.")
    gammas, tilts = (stats[name].transpose("draw", ...).values for name in ("path_kept_gamma", "path_tilt"))
    log_weights = (gamma - gammas[0]) * tilts  # (draws, slots)
    log_weights[np.isnan(log_weights)] = -np.inf
    slots = np.flatnonzero((log_weights > -np.inf).any(axis=0))
    if not slots.size:
        raise ValueError("idata has no kept particles in the selected draws: pass all draws.")
    best = int(slots[np.abs(gammas[0, slots] - gamma).argmin()])
    return best, float(gammas[0, best]), log_weights[:, best]

"""Expectation propagation with a spike-and-slab prior."""

from pymc_pacauc.ep.sparse.fit import SpikeSlabFit, fit_spike_slab

__all__ = ["SpikeSlabFit", "fit_spike_slab"]

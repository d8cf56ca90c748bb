"""Tempering SMC on arrays; see :mod:`pymc_pacauc.smc.tempering` for the algorithm."""

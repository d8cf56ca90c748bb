"""PyMC layer: Op, potential, step method and approximation around the array engines."""

from pymc_pacauc.model import step as step  # registers TemperingSMC, so that pm.sample() can choose it

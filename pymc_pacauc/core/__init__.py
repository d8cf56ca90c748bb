"""What is compared, what it costs, what is certified: arrays, and nothing of PyMC."""

from pymc_pacauc.core import theorems as theorems  # which people find as `pac.theorems`

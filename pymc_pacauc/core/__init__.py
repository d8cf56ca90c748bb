"""What is compared, what it costs, what is certified: arrays, and nothing of PyMC."""

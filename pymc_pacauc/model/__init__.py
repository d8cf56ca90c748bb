"""PyMC layer: Op, potential, step method and approximation around the array engines."""

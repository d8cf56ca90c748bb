"""Expectation propagation for pair sites: sites, sweep, fixed point, and the Gaussian fit built on them."""

from pymc_pacauc.ep.gaussian import ConvergenceWarning, EPFit, fit_ep, fit_vb

__all__ = ["ConvergenceWarning", "EPFit", "fit_ep", "fit_vb"]

"""Expectation propagation's fit of a stage's own target, as a Gaussian to move around.

EP works in whitened coefficients w ~ N(0, I), cut to the k directions that reach the scores, with natural parameters: a
Cholesky factor C of the precision and a mean. Moves need nothing else. In space the fit is used as it is
(:func:`space_fit`); in the gnomonic chart of its mean direction (:func:`chart_fit`) the covariance across the pole is
``(C^-1 B)' (C^-1 B)``, so that a triangular solve and a QR decomposition give its factor. EP's own is not inverted, and
directions that do not reach the scores cost products with k vectors only, where these are few.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.dealt import fit_dealt, groups_to_deal
from pymc_pacauc.ep.gaussian import ConvergenceWarning, EPFit, fit_ep
from pymc_pacauc.smc.chart import GnomonicChart
from pymc_pacauc.smc.gaussian_fit import Fit, GaussianFit, PrecisionFit, ReducedFit, positive_factor

__all__ = ["chart_fit", "fit_stage", "space_fit"]

FloatArray = NDArray[np.float64]

EP_TOLERANCE = 0.02  # it only has to be a good proposal


def fit_stage(problem: Problem, gamma: float, previous: EPFit | None) -> EPFit:
    """EP's fit of the problem at another gamma, from the fit of the stage before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a poor proposal shows in the moves it needs
        return _fit(replace(problem, gamma=gamma), start=previous, tolerance=EP_TOLERANCE, max_sweeps=50, n_jobs=1)


def _fit(target: Problem, **options: Any) -> EPFit:
    """On all pairs, or on dealt ones where these are many: a proposal needs no more."""
    groups = groups_to_deal(target, "auto")
    return fit_ep(target, **options) if groups is None else fit_dealt(target, groups, **options)


def space_fit(ep: EPFit) -> Fit:
    """EP's Gaussian of the whitened coefficients."""
    q, rotation = ep.posterior.natural, ep.problem.scores.reduced.rotation
    if rotation is None:
        return PrecisionFit(q.mean, q.factor)
    if _few(rotation):
        return ReducedFit(PrecisionFit(q.mean, q.factor), rotation, 1.0)
    root = rotation.T @ q.factor  # (d, k)
    precision = np.eye(rotation.shape[1]) + root @ root.T - rotation.T @ rotation
    return PrecisionFit(q.mean @ rotation, linalg.cholesky(precision, lower=True, check_finite=False))


def chart_fit(ep: EPFit) -> tuple[GnomonicChart, Fit]:
    """The chart at EP's mean direction, and a Gaussian for its coordinates by moments.

    The same as :func:`~pymc_pacauc.smc.chart.direction_fit` of the whitened moments.
    """
    q, rotation = ep.posterior.natural, ep.problem.scores.reduced.rotation
    k = q.mean.size
    e = q.mean / np.linalg.norm(q.mean)  # (k,)
    inner = GnomonicChart(e)
    along = float(np.sum(linalg.solve_triangular(q.factor, e, lower=True, check_finite=False) ** 2) + q.mean @ q.mean)
    scale = 1.0 / np.sqrt(along)
    chart = inner if rotation is None else GnomonicChart(e @ rotation)
    if k == 1:
        return chart, GaussianFit(np.zeros(chart.d - 1), np.full(chart.d - 1, scale))
    root = linalg.solve_triangular(q.factor, inner.basis, lower=True, check_finite=False)  # (k, k - 1)
    upper = linalg.qr(root, mode="r", check_finite=False)[0][: k - 1]  # (k - 1, k - 1)
    upper *= np.sign(np.diagonal(upper))[:, None]
    fit = GaussianFit(np.zeros(k - 1), scale * upper.T)
    if rotation is None:
        return chart, fit
    across = inner.basis.T @ chart.across(rotation)  # (k - 1, d - 1)
    if _few(rotation):
        return chart, ReducedFit(fit, across, scale)
    root = fit.factor.T @ across
    covariance = scale**2 * (np.eye(chart.d - 1) - across.T @ across) + root.T @ root
    return chart, GaussianFit(np.zeros(chart.d - 1), *positive_factor(covariance))


def _few(rotation: FloatArray) -> bool:
    """Whether working in the k directions costs less than in all d."""
    return 4 * rotation.shape[0] < rotation.shape[1]

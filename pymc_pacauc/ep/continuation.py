"""Continuation along gamma: the posterior at one gamma is the start for the next, from the prior up.

Up to about ``MANY_MODES`` times the comparison's size (n+ n- / n for two classes) EP has one fixed point. Far beyond,
the Gibbs posterior itself has several modes, EP has a fixed point for each, and the one found depends on the start:
from the prior it may be 50 nats below the best (8 indicator columns, 75 of 1500 rows positive, gamma = 4 n), and from a
fit that has seen the rows to be left out, one that these rows chose. A path from the prior through the gammas at which
there is one fixed point sees nothing but its own pairs, and mostly ends at one of the better ones.

:class:`GammaPath` is that path, by sweeps that find the mean first (:mod:`pymc_pacauc.ep.start`) over a subsample
of the pairs. Fits at a large gamma compare where its end leads with where the prior leads
(:mod:`pymc_pacauc.ep.gaussian`), and posteriors without a group of rows start at its end
(:mod:`pymc_pacauc.ep.leave_out`). Folds for choosing gamma are left out along it at every gamma
(:mod:`pymc_pacauc.ep.leave_out`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.subsample import number_of_groups, sample_pairs
from pymc_pacauc.ep.plan import MANY_MODES, several_fixed_points
from pymc_pacauc.ep.posterior import NaturalGaussian, at_gamma, natural_gaussian, standard_gaussian
from pymc_pacauc.ep.start import MeanFirst, first_gamma, gamma_steps
from pymc_pacauc.numerics import FloatArray, single_threaded_blas
from pymc_pacauc.problem.problem import Problem

# Largest ratio of neighbouring gammas. For rankings of folds 4 does; fits at a large gamma take 2, which halves what
# the end of the path loses against the best fixed point known (0.7 nats on average with 4, 0.5 with 2, 0.6 with 1.4).
STEP, SMALL_STEP = 4.0, 2.0
SWEEPS = 20  # at most, at each gamma; 3 lose 0.14 nats more on average
TOLERANCE = 0.1  # relative change of the natural parameters at which to go on to the next gamma of a start
PAIRS_PER_ROW = 100  # of more pairs so many are sampled; twice as many moves held-out AUCs by less than 0.002
SINGLE = 1e-3  # tolerance from which on single precision will do
LEAST_SHARE = 0.1  # of a step, where steps do not become smaller
MEAN_ERROR = 0.02  # standard deviations of q, in each of its coordinates, to which a mean is found


def continued_start(problem: Problem, power: float) -> NaturalGaussian:
    """A start for EP at the problem's gamma, of its reduced coefficients: the end of a path from the prior."""
    step = SMALL_STEP if several_fixed_points(problem) else STEP
    with single_threaded_blas():
        return GammaPath(problem, power, step).at(problem.gamma, SWEEPS, TOLERANCE).q


@dataclass(frozen=True, eq=False)
class Reached:
    """The posterior ``q`` of the reduced coefficients at a gamma, and the relative change in its last sweep."""

    q: NaturalGaussian
    change: float
    converged: bool


class GammaPath:
    """Posteriors of the reduced coefficients of a problem, by gamma; best asked for from small gammas to large ones.

    Parameters
    ----------
    problem : Problem
        The target; rows that are in no pair are not looked at, and its gamma does not matter.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    step : float, default 4
        Largest ratio of neighbouring gammas.
    pairs_per_row : float, default 100
        Of more pairs, so many are sampled.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> from pymc_pacauc.ep.fit import fit
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(90, 3))
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=90) > 0, gamma=40.0)
    >>> path = GammaPath(problem, 1.0)
    >>> end = path.at(40.0, 100, 1e-6)
    >>> bool(np.abs(end.q.mean - fit(problem).posterior.natural.mean).max() < 1e-3)
    True
    """

    def __init__(
        self, problem: Problem, power: float, step: float = STEP, pairs_per_row: float = PAIRS_PER_ROW
    ) -> None:
        space, rows = problem.scores.reduced, problem.compared_rows
        place = np.zeros(problem.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        design, offset, pairs = space.design[rows], space.offset[rows], problem.pairs.map(place, rows.size)
        self.dimension, self.pairs, self.step = space.dimension, pairs, step
        groups = number_of_groups(pairs, pairs_per_row * pairs.n)
        self.used = sample_pairs(pairs, _first_scores(design, offset, pairs), groups, np.random.default_rng(0))
        self.sweeps = partial(MeanFirst, design, offset, self.used.parts(), power=power, scale_free=problem.scale_free)
        self.known: dict[float, Reached] = {}

    @cached_property
    def single(self) -> MeanFirst:
        return self.sweeps(single=True)

    @cached_property
    def double(self) -> MeanFirst:
        return self.sweeps(single=False)

    def at(self, gamma: float, sweeps: int, tolerance: float) -> Reached:
        """From the nearest gamma known, or the prior, in steps that are not too large."""
        if gamma in self.known:
            return self.known[gamma]
        if self.known:
            nearest = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            q, last = self.known[nearest].q, nearest
            way = gamma_steps(nearest, gamma, self.step)[1:]
        else:
            one = gamma <= MANY_MODES * row_shares(self.pairs).size  # fixed point: no need to go by smaller gammas
            q, last = standard_gaussian(self.dimension), gamma if one else first_gamma(gamma, self.pairs)
            way = gamma_steps(last, gamma, self.step)
        for value in way:
            found = self._settled(at_gamma(q, value / last), value, sweeps, tolerance)
            q, last = found.q, value
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> Reached:
        precise = self.double if tolerance < SINGLE else self.single
        error = min(MEAN_ERROR, 0.1 * tolerance)
        change, share = math.inf, 1.0
        for _ in range(max(sweeps, 1)):
            before = change
            following, change = precise.sweep(q, gamma / self.pairs.total_weight, error)
            if change < tolerance:
                q = following
                break
            if change >= before:  # sweeps that lead to and fro
                share = max(0.5 * share, LEAST_SHARE)
            q = _between(q, following, share)
        return Reached(q, change, change < tolerance)


def _between(q: NaturalGaussian, other: NaturalGaussian, share: float) -> NaturalGaussian:
    """A share of the way from one Gaussian to another."""
    if share == 1.0:
        return other
    precision = q.precision + share * (other.precision - q.precision)
    return natural_gaussian(precision, q.shift + share * (other.shift - q.shift)) or q


def _first_scores(design: FloatArray, offset: FloatArray, pairs: Pairs) -> FloatArray:
    """Scores along the first step from the prior, for two classes the difference of their means."""
    force = np.zeros(pairs.n)
    for block in pairs.blocks:
        force[block.positive] += block.row_weights * block.column_weights.sum()
        force[block.negative] -= block.column_weights * block.row_weights.sum()
    return design @ (force @ design) / pairs.total_weight + offset

"""Starting points for EP at a large gamma, and posteriors along gamma: paths of growing gammas.

Up to about ``MANY_MODES`` times the comparison's size (n+ n- / n for two classes) EP has one fixed point. Far beyond,
the Gibbs posterior itself has several modes, EP has a fixed point for each, and the start decides which is found. From
the prior it may be 50 nats below the best (8 indicator columns, 75 of 1500 rows positive, gamma = 4 n); from a fit to
all rows it is one that was chosen with the rows to be left out. :class:`GammaPath` follows the fixed point from the
prior through growing gammas, by sweeps (:mod:`pymc_pacauc.ep.loop`) over a subsample of the pairs: it uses no rows but
its own, and mostly ends at one of the better fixed points. From one gamma to the next two or three sweeps suffice.

To start elsewhere, return a Gaussian of the reduced coefficients from another function of a problem, and give it a name
in ``Plan.start``. Used by plans with ``continuation=True`` (:func:`continued_start`, at a large gamma) and by
:mod:`pymc_pacauc.ep.leave_out` for posteriors without a group of rows.

Reference: Nocedal & Wright (2006), doi:10.1007/978-0-387-40065-5, chapter 11, for continuation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.subsample import number_of_groups, sample_pairs
from pymc_pacauc.ep.loop import WARM, after_last_sweep, gaussian_iteration, policy_for, solve_fixed_point
from pymc_pacauc.ep.plan import GAMMA_STEP, several_fixed_points
from pymc_pacauc.ep.posterior import NaturalGaussian, at_gamma, standard_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.numerics import FloatArray, single_threaded_blas
from pymc_pacauc.problem.problem import Problem

CAREFUL = replace(WARM, damping=0.3, plain_steps=50)  # converges where rows contradict the prior mean
CHANGE = 0.1  # relative change of natural parameters at which a stage ends; doubled or halved, the fit is the same
SWEEPS = 20  # at most, at each gamma; two or three are usual: doubled or halved, no effect
PAIRS_PER_ROW = 100  # pairs of a subsample; twice as many change held-out AUCs by less than 0.002


def next_gamma(first: float, last: float, ratio: float) -> float:
    """Return the next of the gammas from the first to the last, in equal ratios of at most ``ratio``.

    Examples
    --------
    >>> next_gamma(1.0, 16.0, 4.0), next_gamma(3.0, 1.0, 4.0)
    (4.0, 1.0)
    """
    steps = math.ceil(abs(math.log(last / first, ratio)) - 1e-9)
    return last if steps == 1 else first * (last / first) ** (1 / steps)


def continued_start(problem: Problem, power: float) -> NaturalGaussian:
    """Compute a start for EP at the problem's gamma: the end of a path from the prior.

    Where there may be several fixed points the steps in log gamma are half as long, which halves the loss of log
    evidence against the best fixed point known (0.7 nats on average).
    """
    step = math.sqrt(GAMMA_STEP) if several_fixed_points(problem) else GAMMA_STEP
    with single_threaded_blas():
        return GammaPath(problem, power, step).at(problem.gamma, SWEEPS, CHANGE).q


@dataclass(frozen=True, eq=False)
class Reached:
    """The posterior ``q`` of the reduced coefficients that sweeps ended at (with ``mean`` and ``root``), and how far.

    ``change`` is the relative change of the natural parameters in the last sweep, ``converged`` whether that is less
    than the tolerance; ``restarted`` whether the removal of a group left no density, so that sweeps started at the q of
    all rows.
    """

    q: Any
    change: float
    converged: bool
    restarted: bool = False


class GammaPath:
    """Posteriors of the reduced coefficients of a problem at any gamma; cheapest in the order of growing gamma.

    Parameters
    ----------
    problem : Problem
        The target; rows that are in no pair are ignored, and so is its gamma.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    step : float, default 4
        Largest ratio of neighbouring gammas.
    pairs_per_row : float, default 100
        Largest number of pairs per row; more are subsampled.

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
        self, problem: Problem, power: float, step: float = GAMMA_STEP, pairs_per_row: float = PAIRS_PER_ROW
    ) -> None:
        self.problem, self.power, self.step = problem, power, step
        groups = number_of_groups(problem.pairs, pairs_per_row * problem.compared_rows.size)
        self.used = sample_pairs(problem.pairs, _first_scores(problem), groups, np.random.default_rng(0))
        self.known: dict[float, Reached] = {}

    def at(self, gamma: float, sweeps: int, tolerance: float) -> Reached:
        """Return the posterior at ``gamma``, by steps from the nearest gamma known, or from the prior."""
        if self.known:
            last = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            found = self.known[last]
        else:
            several = several_fixed_points(replace(self.problem, gamma=gamma))
            last = min(gamma, 0.5 * row_shares(self.problem.pairs).size) if several else gamma
            prior = standard_gaussian(self.problem.scores.reduced.dimension)
            found = self._settled(prior, last, sweeps, tolerance)
        step = self.step
        while last != gamma:
            value = next_gamma(last, gamma, step)
            tried = self._settled(at_gamma(found.q, value / last), value, sweeps, tolerance)
            if tried.converged or step < 1.2:  # a ratio of gammas, below which smaller steps help no more
                found, last = tried, value
            else:
                step = math.sqrt(step)
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> Reached:
        """Sweep at one gamma until the change is below the tolerance; where that fails, again with much damping."""
        problem = replace(self.problem, gamma=gamma)
        table = SiteTable(problem.gamma_per_pair, self.power)
        iteration = gaussian_iteration(problem, self.power, lambda q: sampled_sums(problem, q, self.used, table))
        for policy in (WARM, CAREFUL):
            own = policy_for(q.mean.size, policy)
            found = solve_fixed_point(iteration, q, own, tolerance=tolerance, max_sweeps=sweeps)
            if found.converged:
                break
        return Reached(after_last_sweep(iteration, found), found.seen.change, found.converged)


def _first_scores(problem: Problem) -> FloatArray:
    """Compute scores along the first step from the prior: for two classes, along the difference of their means."""
    space, pairs = problem.scores.reduced, problem.pairs
    force = pairs.side_weights[0] - pairs.side_weights[1]
    return np.asarray(space.design @ (force @ space.design) / pairs.total_weight + space.offset)

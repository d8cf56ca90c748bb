"""EP in the leading directions of a smooth process; what that says about the others.

The directions of a smooth process (:mod:`pymc_pacauc.core.scores`) come in the order of the prior variance that they
explain: u first, which leave no score more than a thousandth of it, and then the rest v, whose posterior is nearly
their prior. The sites hardly depend on v. So EP iterates with the scores that depend on u alone, and then takes the
sites it has found as those of all directions: q(u, v) is the prior with these sites. At EP's fixed point log Z does not
depend on the sites to first order, so what v adds to it is right to second order,

    log Z(u, v) = log Z(u) - log det(S) / 2 + b'S^-1 b / 2,

the sites' integral over v given u. The number of leading directions grows with the digits that are asked for: at a
tolerance below 1e-8 they are all. Nor is EP iterated further there than v would change what is found: 300 times the
tolerance is a third of what v has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.fixed_point import Solution
from pymc_pacauc.ep.natural import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import score_moments, sum_sites

__all__ = ["all_directions", "leading_problem"]

Found = Solution[NaturalGaussian, Any]

LEADING_TIMES = 300.0  # the tolerance, in the leading directions: the others would take further digits away
TIMES_TOLERANCE, MOST_LEFT = 1000.0, 1e-3  # of the smallest variance of a score, that leading directions leave
WORTH = 0.9


def leading_problem(problem: Problem, tolerance: float) -> Problem:
    """The problem in its leading directions; itself where there are none, or nearly all directions are."""
    space = problem.scores.reduced
    if space.pivots is None:
        return problem
    explained = np.diagonal(space.design[space.pivots]) ** 2  # the most that a score had left
    least = float(np.einsum("ij,ij->i", space.design, space.design).min())
    k = int(np.sum(explained > min(TIMES_TOLERANCE * tolerance, MOST_LEFT) * least))
    return problem if k > WORTH * space.dimension else replace(problem, scores=problem.scores.leading(k))


def all_directions(
    problem: Problem,
    leading: Problem,
    found: Found,
    table: SiteTable,
    map_tiles: Callable[..., Any] = map,
) -> Found | None:
    """A solution in the leading directions, completed; None where its sites are no density together with the prior."""
    space, part, q = problem.scores.reduced, leading.scores.reduced, found.point
    options: dict[str, Any] = {"tie_cost": problem.tie_cost, "map_tiles": map_tiles}
    moments = score_moments(part.design, part.offset, q.mean, q.factor, map_tiles)
    sums = sum_sites(space.design, space.offset, moments, problem.pairs, table, **options)
    precision = sums.precision
    precision[np.diag_indices(space.dimension)] += 1.0
    whole = natural_gaussian(precision, sums.shift)
    if whole is None:
        return None
    moments = score_moments(space.design, space.offset, whole.mean, whole.factor, map_tiles)
    seen = sum_sites(space.design[:, :1], space.offset, moments, problem.pairs, table, **options)  # for the risk alone
    risk = float(seen.wrong / problem.pairs.total_weight)
    bound = -problem.gamma * risk - whole.divergence
    log_evidence = bound
    if table.power > 0.0:
        log_evidence = sums.log_constant + whole.log_partition()
    known = replace(found.seen, log_evidence=log_evidence, expected_risk=risk, bound=bound)
    return replace(found, point=whole, seen=known, following=whole)

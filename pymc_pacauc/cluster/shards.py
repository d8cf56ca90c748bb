"""The tasks of workers: sums of sites over a part of the pairs; and the division of a problem into such parts.

A sweep of EP is a map over parts and a sum: every worker holds a part, a :class:`~pymc_pacauc.problem.problem.Problem`
of some rows, and :func:`sums` adds up the sites of its pairs under the q that it is sent. :func:`total` sends q to all
parts in one round and adds up what comes back, d x d numbers each.

*Shards* (:func:`sums_on`, for ``EP(client=)``), exact, of problems that fit into one memory: pairs are divided among
shards, each with the rows that its pairs need. A block of pairs is divided along its longer side, so that only rows of
the shorter one are in several shards.

*Parts of rows* (:func:`look` to :func:`split_rows`): see :mod:`pymc_pacauc.cluster.rows`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client

from pymc_pacauc.cluster.rounds import check_client, gather, hold, submit
from pymc_pacauc.comparison.kinds import by_stratum
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.comparison.subsample import SampledPairs, sample_pairs
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import SiteSums, add_up
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores, ReducedScores

# A sweep over so many pairs takes as long as a round of tasks, some hundredths of a second. Doubled, problems of up to
# twenty million pairs are refused.
LEAST_PAIRS = 10_000_000


def part_of_problem(design: FloatArray, offset: FloatArray, pairs: Pairs, gamma: float, ties: str = "half") -> Problem:
    """Make the problem of some rows in coordinates u ~ N(0, I), the same for all parts; ``design`` is (n, k)."""
    k = design.shape[1]
    scores = LinearScores(design, offset, GaussianPrior(np.zeros(k), np.ones(k)))
    vars(scores)["reduced"] = ReducedScores(design, offset, None)  # not restricted to directions of this part's rows
    return Problem(scores, pairs, gamma, ties=ties)


def sums(
    problem: Problem,
    sampled: SampledPairs | None = None,
    *,
    precision: FloatArray,
    shift: FloatArray,
    gamma: float,
    power: float = 1.0,
    stands_for: float = 1.0,
) -> SiteSums:
    """Sum the sites of a part's pairs, or of those ``sampled``, under q; each counts ``stands_for`` times.

    ``gamma`` is that of a pair of weight one.
    """
    q = natural_gaussian(precision, shift)
    assert q is not None  # the sender factorised it too
    used = all_of(problem.pairs) if sampled is None else sampled
    return sampled_sums(problem, q, used, SiteTable(gamma, power)).times(stands_for)


def total(client: Client, parts: Sequence[Any], q: NaturalGaussian, **options: Any) -> SiteSums:
    """Compute :func:`sums` of all parts under q on the workers, in one round, and add them up."""
    of_part = partial(sums, precision=q.precision, shift=q.shift, **options)
    return add_up(gather(client, submit(client, of_part, parts)))


def all_of(pairs: Pairs) -> SampledPairs:
    """Return all pairs as a subsample."""
    return SampledPairs(pairs, (), 1.0, np.zeros(pairs.n), None)


# -- shards ----------------------------------------------------------------------------------------------------------


def shards(problem: Problem, count: int) -> list[Problem]:
    """Divide the pairs of a problem into ``count`` shards of about equal numbers of pairs, or fewer."""
    space = problem.scores.reduced
    shares: dict[int, list[Block]] = defaultdict(list)
    most, before = -(-problem.pairs.n_pairs // count), 0
    for block in problem.pairs.blocks:
        rows, columns = block.positive.size, block.negative.size
        # shard of each row of the longer side, whose pairs with the shorter one stay together
        place = (before + min(rows, columns) * np.arange(max(rows, columns))) // most
        before += block.n_pairs
        for part in np.split(np.arange(place.size), np.flatnonzero(np.diff(place)) + 1):
            piece = block.take(part, slice(None)) if rows >= columns else block.take(slice(None), part)
            shares[place[part[0]]].append(piece)
    found = []
    for blocks in shares.values():
        used = np.unique(np.concatenate([index for block in blocks for index in (block.positive, block.negative)]))
        pairs = Pairs(problem.n, tuple(blocks)).on_rows(used)
        found.append(part_of_problem(space.design[used], space.offset[used], pairs, problem.gamma, problem.ties))
    return found


@contextmanager
def sums_on(client: Client, problem: Problem, table: SiteTable) -> Iterator[Callable[[NaturalGaussian], SiteSums]]:
    """Yield ``sums(q)``, the sums of the sites of all pairs, computed on the workers of a cluster."""
    check_worth(problem.pairs.n_pairs)
    check_client(client)
    number = 4 * sum(client.nthreads().values())  # several a thread, so that workers finish at about the same time
    held = hold(client, shards(problem, number))
    yield lambda q: total(client, held, q, gamma=table.gamma, power=table.power)


def check_worth(n_pairs: int) -> None:
    """Refuse problems with so few pairs that one machine is faster."""
    if n_pairs < LEAST_PAIRS:
        raise ValueError(f"{n_pairs:,} pairs are too few for a cluster (below {LEAST_PAIRS:,}): leave client out.")


# -- parts of rows ------------------------------------------------------------------------------------------------


def look(raw: tuple[Any, Any]) -> dict[str, Any]:
    """Check a part (X, y), and count its columns, its rows of each class, and its values that are not finite."""
    X, y = np.asarray(raw[0], dtype=np.float64), np.asarray(raw[1])
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"rows must have parts (X, y) of shapes (n, d) and (n,); got {X.shape} and {y.shape}.")
    if not np.isin(y, (-1, 0, 1)).all():
        wrong = np.unique(y[~np.isin(y, (-1, 0, 1))])[:5].tolist()
        raise ValueError(f"rows must have labels y that are booleans, {{0, 1}} or {{-1, 1}}; got {wrong}.")
    positive = int((y > 0).sum())
    return {"d": X.shape[1], "positive": positive, "negative": y.size - positive, "bad": int((~np.isfinite(X)).sum())}


def prepare(raw: tuple[Any, Any], prior: GaussianPrior, gamma: float) -> Problem:
    """Make the problem of a part, in all whitened coefficients."""
    X = np.asarray(raw[0], dtype=np.float64)
    shift = X @ prior.mean
    design = prior.whiten_rows(X - X.mean(axis=0))
    return part_of_problem(design, shift - shift.mean(), bipartite(np.asarray(raw[1]) > 0), gamma)


def sample_rows(
    problem: Problem, seed: np.random.SeedSequence, direction: FloatArray | None, groups: float
) -> SampledPairs:
    """Put the rows of a part into groups along a score, or at random where ``direction`` is None."""
    rng = np.random.default_rng(seed)
    score = rng.random(problem.n) if direction is None else problem.X @ direction + problem.offset
    return sample_pairs(problem.pairs, score, groups, rng)


def split_rows(problem: Problem, seed: np.random.SeedSequence, groups: int) -> SampledPairs:
    """Split the rows of a part at random into groups of equal size, as if these were parts."""
    group_of = np.random.default_rng(seed).permutation(np.arange(problem.n) % groups)
    [block] = problem.pairs.blocks
    return all_of(replace(problem.pairs, blocks=tuple(by_stratum(block, group_of))))

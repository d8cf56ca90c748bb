"""The pairs of a problem shared out to the workers of a cluster: exact, for problems that fit in one memory.

Every shard has the rows that its pairs need, so a sweep needs nothing but q: it is one round of tasks, and the sum of
what they return. A block of pairs is cut along its longer side, so that the rows of the shorter one alone are repeated.

What a worker does with its part of the rows; see :mod:`pymc_pacauc.cluster.rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import Client

from pymc_pacauc.cluster.rounds import check_client, gather, hold, release, submit, threads
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.comparison.subsample import SampledPairs, sample_pairs
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import SiteSums, score_moments, sum_sites
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores, ReducedScores

LEAST_PAIRS = 10_000_000  # a round of tasks costs some hundredths of a second, as much as a sweep over so many
SHARDS_A_THREAD = 4  # so that no worker waits for another for long


@dataclass(frozen=True, eq=False)
class Shard:
    """A part of the pairs, and the rows among which they are."""

    design: FloatArray
    offset: FloatArray
    pairs: Pairs
    tie_cost: float


def shards(problem: Problem, count: int) -> list[Shard]:
    """The pairs of a problem in ``count`` shards of about as many pairs each."""
    space = problem.scores.reduced
    most = -(-problem.pairs.n_pairs // count)
    pieces = [piece for block in problem.pairs.blocks for piece in _pieces(block, most)]
    shares: list[list[Block]] = [[] for _ in range(min(count, len(pieces)))]
    load = np.zeros(len(shares))
    for piece in sorted(pieces, key=lambda piece: -piece.n_pairs):  # the largest first, to whom has least
        k = int(np.argmin(load))
        shares[k].append(piece)
        load[k] += piece.n_pairs
    found = []
    for share in shares:
        rows = np.unique(np.concatenate([index for block in share for index in (block.positive, block.negative)]))
        place = np.zeros(problem.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        pairs = Pairs(problem.n, tuple(share)).map(place, rows.size)
        found.append(Shard(space.design[rows], space.offset[rows], pairs, problem.tie_cost))
    return found


def _pieces(block: Block, most: int) -> Iterator[Block]:
    rows, columns = block.positive.size, block.negative.size
    step = max(1, most // min(rows, columns))
    for start in range(0, max(rows, columns), step):
        part = slice(start, start + step)
        yield block.take(part, slice(None)) if rows >= columns else block.take(slice(None), part)


def shard_sums(shard: Shard, mean: FloatArray, factor: FloatArray, gamma: float, power: float) -> SiteSums:
    """The sums of the sites of a shard's pairs, under q by its mean and the Cholesky factor of its precision."""
    moments = score_moments(shard.design, shard.offset, mean, factor)
    table = site_table(gamma, power)
    return sum_sites(shard.design, shard.offset, moments, shard.pairs, table, tie_cost=shard.tie_cost)


def times(sums: SiteSums, factor: float) -> SiteSums:
    """So many times the sums; ``tied`` stays a count of pairs."""
    return replace(sums, **{name: factor * value for name, value in vars(sums).items() if name != "tied"})


def add_up(parts: list[SiteSums]) -> SiteSums:
    """Add sums in the order given, so that the result does not depend on who was first."""
    return SiteSums(*(sum(values) for values in zip(*(vars(each).values() for each in parts), strict=True)))


@contextmanager
def sums_on(client: Client, problem: Problem, table: SiteTable) -> Iterator[Callable[[NaturalGaussian], SiteSums]]:
    """The sums of the sites of all pairs under q, by the workers of a cluster."""
    check_worth(problem.pairs.n_pairs)
    check_client(client)
    held: list[Any] = hold(client, shards(problem, SHARDS_A_THREAD * threads(client)))

    def sums_at(q: NaturalGaussian) -> SiteSums:
        return add_up(gather(client, submit(client, shard_sums, held, q.mean, q.factor, table.gamma, table.power)))

    try:
        yield sums_at
    finally:
        release(held)


def check_worth(n_pairs: int) -> None:
    if n_pairs < LEAST_PAIRS:
        raise ValueError(
            f"{n_pairs:,} pairs are too few for a cluster: this machine compares them in less time than it takes to "
            f"ask the workers. Leave client away (it is for {LEAST_PAIRS:,} pairs and more)."
        )


def both(X: Any, y: Any) -> tuple[Any, Any]:
    return X, y


def look(raw: tuple[Any, Any]) -> dict[str, Any]:
    X, y = np.asarray(raw[0], dtype=np.float64), np.asarray(raw[1])
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"A part must be (X, y) of shapes (n, d) and (n,); got {X.shape} and {y.shape}.")
    if not np.isin(y, (-1, 0, 1)).all():
        raise ValueError("The labels y must be booleans, {0, 1} or {-1, 1}.")
    positive = int((y > 0).sum())
    return {"d": X.shape[1], "positive": positive, "negative": y.size - positive, "bad": int((~np.isfinite(X)).sum())}


def prepare(raw: tuple[Any, Any], prior: GaussianPrior, gamma: float) -> Problem:
    """The problem of a part, in whitened coefficients: all of them, so that those of all parts are the same."""
    X = np.asarray(raw[0], dtype=np.float64)
    shift = X @ prior.mean
    design, offset = prior.whiten_rows(X - X.mean(axis=0)), shift - shift.mean()
    d = X.shape[1]
    scores = LinearScores(design, offset, GaussianPrior(np.zeros(d), np.ones(d)))
    vars(scores)["reduced"] = ReducedScores(design, offset, None)  # not cut to the directions that this part reaches
    return Problem(scores, bipartite(np.asarray(raw[1]) > 0), gamma)


def sample_rows(
    problem: Problem, seed: np.random.SeedSequence, direction: FloatArray | None, groups: float
) -> SampledPairs:
    """The rows of a part in groups along a score, or at random."""
    rng = np.random.default_rng(seed)
    score = rng.random(problem.n) if direction is None else problem.X @ direction + problem.offset
    return sample_pairs(problem.pairs, score, groups, rng)


def split_rows(problem: Problem, seed: np.random.SeedSequence, groups: int) -> SampledPairs:
    """The rows of a part in groups of the same size, whatever their score and class: parts of a part."""
    group_of = np.random.default_rng(seed).permutation(np.arange(problem.n) % groups)
    [block] = problem.pairs.blocks
    sides = []
    for index in (block.positive, block.negative):
        ends = np.cumsum(np.bincount(group_of[index], minlength=groups))[:-1]
        sides.append(np.split(np.argsort(group_of[index], kind="stable"), ends))
    blocks = tuple(block.take(*rows) for rows in zip(*sides, strict=True) if all(map(len, rows)))
    return SampledPairs(replace(problem.pairs, blocks=blocks), (), groups, np.zeros(problem.n), None)


def count(found: SampledPairs) -> int:
    return found.n_pairs


def sums(
    problem: Problem,
    sampled: SampledPairs,
    precision: FloatArray,
    shift: FloatArray,
    gamma: float,
    power: float,
    stands_for: float,
) -> SiteSums:
    q = natural_gaussian(precision, shift)
    assert q is not None  # it is one on the machine that sent it
    return times(sampled_sums(problem, q, sampled, site_table(gamma, power)), stands_for)

"""What a worker does with its part of the rows; see :mod:`pymc_pacauc.cluster.rows`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.cluster.pairs import times
from pymc_pacauc.core.deal import Deal, deal
from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.scores import GaussianPrior, LinearScores, ReducedScores
from pymc_pacauc.ep.dealt_sums import dealt_sums
from pymc_pacauc.ep.natural import natural_gaussian
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.ep.sweep import SiteSums

__all__ = ["both", "count", "deal_rows", "look", "prepare", "split_rows", "sums"]

FloatArray = NDArray[np.float64]


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


def deal_rows(problem: Problem, seed: np.random.SeedSequence, direction: FloatArray | None, groups: float) -> Deal:
    """The rows of a part in groups along a score, or at random."""
    rng = np.random.default_rng(seed)
    score = rng.random(problem.n) if direction is None else problem.X @ direction + problem.offset
    return deal(problem.pairs, score, groups, rng)


def split_rows(problem: Problem, seed: np.random.SeedSequence, groups: int) -> Deal:
    """The rows of a part in groups of the same size, whatever their score and class: parts of a part."""
    group_of = np.random.default_rng(seed).permutation(np.arange(problem.n) % groups)
    [block] = problem.pairs.blocks
    sides = []
    for index in (block.positive, block.negative):
        ends = np.cumsum(np.bincount(group_of[index], minlength=groups))[:-1]
        sides.append(np.split(np.argsort(group_of[index], kind="stable"), ends))
    blocks = tuple(block.take(*rows) for rows in zip(*sides, strict=True) if all(map(len, rows)))
    return Deal(replace(problem.pairs, blocks=blocks), (), groups, np.zeros(problem.n), None)


def count(found: Deal) -> int:
    return found.n_pairs


def sums(
    problem: Problem,
    dealt: Deal,
    precision: FloatArray,
    shift: FloatArray,
    gamma: float,
    power: float,
    stands_for: float,
) -> SiteSums:
    q = natural_gaussian(precision, shift)
    assert q is not None  # it is one on the machine that sent it
    return times(dealt_sums(problem, q, dealt, site_table(gamma, power)), stands_for)

"""One sweep of EP: the sums of the sites of all pairs, given q, by matrix products over tiles of pairs.

The scores under q = N(m, V) have means a_i and covariance T T', T of shape (n, k), so the difference of a pair has
variance |t_i|^2 + |t_j|^2 - 2 t_i . t_j. A tile of pairs is two matrix products and one pass of the site functions
(:mod:`pymc_pacauc.ep.sites`) between them:

    t_i . t_j  (GEMM)   ->   K_ij, h_ij  (pointwise)   ->   sum_j K_ij z_j  (GEMM)

and the sums wanted, sum_ij K_ij (z_i - z_j)(z_i - z_j)', (k, k), and sum_ij h_ij (z_i - z_j), (k,), follow from the row
and column sums of K and h and from sum_ij K_ij z_i z_j'. z_i, (k,), is the row of the design.

A sweep costs O(n+ n- k + n k^2), a factor k less than the paper's, in memory O(n k + tiles under way). Plans with
``pairs="all"`` sweep this way. Tiles go through any ``map`` (of threads, or of other machines) and are added in a fixed
order, so the result does not depend on the number of threads.

:func:`cut_work` divides the pairs into parts. A block whose weights take few values becomes blocks of one weight each,
which need a table in one variable only (4 times as fast); many small blocks become one part (2.5 to 4 times as fast).
The K of a pair whose rows nearly coincide is huge and would cancel the digits of the other pairs in those sums: such
pairs are listed, and added one by one (:func:`listed_sites`).

To distribute a sweep in another way, pass :func:`sum_sites` another ``map_tiles``, or set ``Plan.where``.

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, appendix Algorithm 3, which stores every site and
updates them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep import sites
from pymc_pacauc.ep.posterior import Moments, NaturalGaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.numerics import FloatArray, cores, single_threaded_blas, slices
from pymc_pacauc.problem.problem import Problem

# Most rows and columns of a tile of pairs (and rows of other matrices at a time): 16 MB. Doubled, as fast in twice the
# memory.
ROWS_AT_ONCE, TILE_COLUMNS = 512, 4096
# Pairs times coefficients below which a block is too small for a matrix product of its own (tens of microseconds), if
# there are more than FEW such blocks; one call then sums so many of their pairs. Doubled, blocks in between take 0.6 of
# the time with 10 columns, 0.9 with 30, 1.1 with 100; FEW has no effect from a thousand rows on.
SMALL_BLOCK, FEW = 2**15, 8
WORTH_A_TILE = 64  # pairs of one weight, on average, for a block to be cut by its weights; doubled: fewer cuts


class Work(NamedTuple):
    """A part, and the least and largest weight of the pairs that share its table."""

    part: sites.Part
    weights: tuple[float, float]


_known_work: WeakKeyDictionary[Pairs, dict[int, list[Work]]] = WeakKeyDictionary()


def cut_work(
    pairs: Pairs, d: int, *, small_block: int = SMALL_BLOCK, most_tables: int = sites.MOST_TABLES
) -> list[Work]:
    """Divide the pairs into parts of a sweep; cached, because every sweep over the same pairs has the same parts.

    Parts of one weight have a table each, all others one in common.
    """
    known = _known_work.setdefault(pairs, {})
    if d not in known:
        known[d] = _cut(pairs, d, small_block, most_tables)
    return known[d]


def _cut(pairs: Pairs, d: int, small_block: int, most_tables: int) -> list[Work]:
    small = [block for block in pairs.blocks if block.n_pairs * d <= small_block]
    if len(small) <= FEW:
        small = []
    together = set(map(id, small))
    large = [part for block in pairs.blocks if id(block) not in together for part in _by_weight(block, most_tables)]
    few = len({block.weight for block in large if block.constant}) <= most_tables
    varying = [block for block in large if not (few and block.constant)] + small
    ends = [float(f(b.row_weights) * f(b.column_weights)) for b in varying for f in (np.min, np.max)] or [1.0]
    of_all, parts = (min(ends), max(ends)), []
    for block in large:
        alone = few and block.constant
        weights = (block.weight, block.weight) if alone else of_all
        parts += [Work(sites.part_of([tile], alone), weights) for tile in _tiles(block)]
    return parts + [Work(sites.part_of(share), of_all) for share in _shares(small)]


def _by_weight(block: Block, most: int) -> list[Block]:
    """Split a block whose weights take few values (counts, for example) into blocks of one weight each."""
    if block.constant:
        return [block]
    rows, row = np.unique(block.row_weights, return_inverse=True)
    columns, column = np.unique(block.column_weights, return_inverse=True)
    if rows.size * columns.size > min(most, block.n_pairs / WORTH_A_TILE):
        return [block]
    return [
        Block(block.positive[row == i], block.negative[column == j], weight=float(a * b))
        for i, a in enumerate(rows)
        for j, b in enumerate(columns)
    ]


def _tiles(block: Block) -> Iterator[Block]:
    """Split a block into tiles: at least eight, for threads, unless these have fewer than 64 rows."""
    height = min(ROWS_AT_ONCE, max(64, -(-block.positive.size // 8)))
    for top in range(0, block.positive.size, height):
        for left in range(0, block.negative.size, TILE_COLUMNS):
            yield block.take(slice(top, top + height), slice(left, left + TILE_COLUMNS))


def _shares(blocks: list[Block]) -> list[list[Block]]:
    """Split a list of blocks into runs of about an eighth of all pairs, or ``SMALL_BLOCK`` pairs if that is more."""
    before = np.cumsum([0] + [block.n_pairs for block in blocks])
    number = before[:-1] // max(SMALL_BLOCK, before[-1] // 8)
    return [[block for block, own in zip(blocks, number, strict=True) if own == each] for each in np.unique(number)]


@contextmanager
def tile_map(n_pairs: int, dimension: int, n_jobs: int | None = None) -> Iterator[Callable[..., Any]]:
    """Yield a ``map`` over tiles: on threads (by default one per core) if a sweep takes more than about a millisecond.

    Within the context BLAS is single-threaded: its threads synchronise at every step of a factorization, which costs
    more than it saves when another thread uses a core.
    """
    n_jobs = cores() if n_jobs is None else n_jobs
    with single_threaded_blas():
        if n_jobs == 1 or (n_pairs < ROWS_AT_ONCE**2 and dimension < ROWS_AT_ONCE):
            yield map
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                yield pool.map


# i, j, variance, weight, and how often each pair counts
Listed = tuple[NDArray[np.intp], NDArray[np.intp], FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Means (n,) of the scores under q, ``root`` T (n, k) with ``cov(scores) = root @ root.T``, and ``square``, (n,),
    the squared row norms of T, which are the variances.
    """

    mean: FloatArray
    root: FloatArray
    square: FloatArray


@dataclass(frozen=True, eq=False)
class SiteSums:
    """Sums of the sites over pairs: ``precision`` (k, k) and ``shift`` (k,) of the coefficients, and three scalars.

    ``log_constant`` is the sum of log C, including the sites' value at zero coefficients when there is an offset;
    ``wrong`` is the expected weight of wrong pairs, ``tied`` the number of pairs that tie whatever the coefficients.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: float
    wrong: float
    tied: int

    def times(self, number: float) -> SiteSums:
        """Count every pair ``number`` times; ``tied`` is a count of pairs, and stays."""
        log_constant, wrong = number * self.log_constant, number * self.wrong
        return SiteSums(number * self.precision, number * self.shift, log_constant, wrong, self.tied)


def add_up(parts: Iterable[SiteSums]) -> SiteSums:
    """Add sums, in order."""
    return SiteSums(*(sum(values) for values in zip(*(vars(each).values() for each in parts), strict=True)))


def check_offset(problem: Problem) -> None:
    """Refuse offsets so far apart that double precision cannot hold the evidence.

    The sites' constants are sums over pairs of K o_i^2 and the like, with K about gamma / (n+ n- v), v the prior
    variance of a score: rounding leaves an error of about eps gamma max(o)^2 / v in log Z.
    """
    space = problem.scores.reduced
    spread = float(np.abs(space.offset).max())
    sd = float(np.sqrt(np.mean(np.einsum("ij,ij->i", space.design, space.design))))
    rounding = np.finfo(float).eps * problem.gamma * (spread / sd) ** 2 if sd > 0.0 else 0.0
    if rounding > 1e-3:  # nats: what models may differ by
        raise ValueError(
            f"The scores at the prior mean (offset included) are up to {spread:.2g} from their average, "
            f"{spread / sd:.2g} times the prior standard deviation of a score: in double precision EP's log evidence "
            f"would be wrong by about {rounding:.1g}. Such an offset decides nearly all pairs whatever the "
            "coefficients: rescale it, widen the prior, or use pm.sample(step=pac.TemperingSMC())."
        )


def score_moments(
    design: FloatArray, offset: FloatArray, q: NaturalGaussian | Moments, map_tiles: Callable[..., Any] = map
) -> ScoreMoments:
    """Compute the moments of ``design @ w + offset`` for w ~ q."""
    _ = q.root  # computed once, before threads ask for it
    root = np.concatenate(
        list(map_tiles(q.rooted, (design[rows] for rows in slices(len(design), at_once=ROWS_AT_ONCE))))
    )
    return ScoreMoments(design @ q.mean + offset, root, np.einsum("ij,ij->i", root, root))


def sweep_sums(
    problem: Problem,
    q: NaturalGaussian | Moments,
    pairs: Pairs,
    table: SiteTable,
    map_tiles: Callable[..., Any] = map,
) -> SiteSums:
    """Sum the sites of ``pairs`` under q, a Gaussian of the problem's reduced coefficients or the first of them."""
    space = problem.scores.reduced
    design = space.design[:, : q.mean.size]
    moments = score_moments(design, space.offset, q, map_tiles)
    work = cut_work(pairs, design.shape[1])
    return sum_sites(design, space.offset, moments, work, table, tie_cost=problem.tie_cost, map_tiles=map_tiles)


def sum_sites(
    design: FloatArray,
    offset: FloatArray,
    moments: ScoreMoments,
    work: list[Work],
    table: SiteTable,
    *,
    tie_cost: float = 0.5,
    map_tiles: Callable[..., Any] = map,
) -> SiteSums:
    """Sum the sites of all pairs of ``work`` at given score moments; ``design`` is (n, k). See the module docstring."""
    if not (np.isfinite(moments.mean).all() and np.isfinite(moments.square).all()):
        raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
    # With an offset o the score is [z, o] . [w, 1]: sums over the extended rows contain those wanted.
    extended = np.column_stack([design, offset]) if offset.any() else design
    d, size = design.shape[1], extended.shape[1]
    k, h, by_row, (wrong, log_constant, tied), listed = sum_by_row(
        extended, moments, work, table, tie_cost=tie_cost, map_tiles=map_tiles
    )
    half = extended.T @ ((0.5 * k)[:, None] * extended - by_row)
    precision, linear = half + half.T, extended.T @ h
    if listed:
        i, j, k, h, site_wrong, site_log_constant = listed_sites(listed, moments.mean, table)
        wrong, log_constant = wrong + site_wrong, log_constant + site_log_constant
        for some in slices(len(i), size):
            difference = extended[i[some]] - extended[j[some]]
            precision += (difference.T * k[some]) @ difference
            linear += difference.T @ h[some]
    if size > d:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    return SiteSums(precision, linear, float(log_constant), float(wrong), int(tied))


class RowSums(NamedTuple):
    """Sums over the partners of each row: K (n,), h (n,), negative for the lower row of a pair, and K z (n, size).

    ``totals`` are the weight of wrong pairs, log constants and the number of tied pairs. Pairs that are in none of
    these sums are ``listed``, arrays each.
    """

    k: FloatArray
    h: FloatArray
    kz: FloatArray
    totals: FloatArray
    listed: list[Listed]


def sum_by_row(
    z: FloatArray,
    moments: ScoreMoments,
    work: list[Work],
    table: SiteTable,
    *,
    tie_cost: float,
    map_tiles: Callable[..., Any] = map,
    both: bool = False,
) -> RowSums:
    """Sum the sites of ``work`` by row; K z over the partners of positives, or of ``both`` sides of each pair."""
    tables = {weights: table.between(*weights) for _, weights in work}

    n = moments.mean.size

    def job(each: Work) -> tuple[Any, tuple[FloatArray, ...]]:
        at = slice(None) if each.part.members.size == n else each.part.members
        own = tuple(of[at] for of in (moments.mean, moments.square, moments.root, z))
        return at, sites.part_sites(each.part, own, both, tables[each.weights], tie_cost)

    found = RowSums(np.zeros(n), np.zeros(n), np.zeros((n, z.shape[1])), np.zeros(3), [])
    for at, (k, h, kz, totals, far) in map_tiles(job, work):
        for total, each in zip(found[:3], (k, h, kz), strict=True):
            total[at] += each
        found.totals[:] += totals
        if len(far):
            pair = np.arange(n)[at][far[:, :2].astype(np.intp)]
            found.listed.append((pair[:, 0], pair[:, 1], *far[:, 2:].T))
    return found


def listed_sites(
    listed: list[Listed], mean: FloatArray, table: SiteTable
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray, FloatArray, float, float]:
    """Compute i, j, K and h of listed pairs, without tables; as often as they count.

    Also returns the expected weight of the wrong pairs among them, and the sum of their log constants.
    """
    i, j, variance, weight, times = (np.concatenate(columns) for columns in zip(*listed, strict=True))
    gamma = table.gamma * weight
    sites.check_gamma_per_pair(float(gamma.max()), table.power)
    rho = np.clip(
        (mean[i] - mean[j]) / np.sqrt(variance), sites.lowest_rho(float(gamma.max()), table.power), sites.UPPER
    )
    same = bool((gamma == gamma[0]).all())
    site = sites.site_functions(rho, float(gamma[0]) if same else gamma, table.power)
    k, h = times * site.precision / variance, times * site.shift / np.sqrt(variance)
    return i, j, k, h, float((times * weight) @ site.wrong), float(times @ site.log_constant)

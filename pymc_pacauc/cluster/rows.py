"""EP on rows that no machine holds alone: every worker compares the rows it has loaded with each other.

Rows come in parts, files or chunks of a Dask array, in random order. Each part deals its own rows into groups along the
score (:mod:`pymc_pacauc.core.deal`) and estimates the sums over all its pairs; a pair within a part stands for
``pairs of all rows / pairs within parts``. So nothing but q goes to the workers, and nothing but sums of its size comes
back. The rows are dealt twice: at random for a pilot fit, then along the score that it found.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from distributed import Client, Future
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.cluster.pairs import add_up, check_worth, times
from pymc_pacauc.cluster.rounds import check_client, gather, hold, submit
from pymc_pacauc.core.deal import Deal, deal
from pymc_pacauc.core.numeric import numeric_array
from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import Problem, check_gamma
from pymc_pacauc.core.scores import GaussianPrior, LinearScores, ReducedScores
from pymc_pacauc.ep.dealt_sums import dealt_sums
from pymc_pacauc.ep.fixed_point import solve_fixed_point
from pymc_pacauc.ep.gaussian_iteration import POLICY, gaussian_iteration
from pymc_pacauc.ep.natural import NaturalGaussian, draw_natural, natural_gaussian, standard_gaussian
from pymc_pacauc.ep.results import ConvergenceWarning, possible
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.ep.sweep import SiteSums

__all__ = ["RowsFit", "fit_rows", "load_npz"]

FloatArray = NDArray[np.float64]

PAIRS_A_ROW = 200.0
PILOT_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class RowsFit:
    """A Gaussian approximation of the posterior of rows on a cluster.

    Attributes
    ----------
    mean, covariance
        Of theta.
    log_evidence, expected_risk
        As of any EP fit, estimated from the pairs compared.
    converged, sweeps, history
        Of the second fit; ``sweeps`` counts those of the pilot too.
    n_pos, n_neg, pairs_used
        Rows of each class, and how many of their pairs were compared.
    """

    mean: FloatArray
    covariance: FloatArray
    log_evidence: float
    expected_risk: float
    converged: bool
    sweeps: int
    history: tuple[dict[str, float], ...]
    n_pos: int
    n_neg: int
    pairs_used: int
    natural: NaturalGaussian
    prior: GaussianPrior

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta, shape (draws, d)."""
        return self.prior.color(draw_natural(self.natural, draws, rng))

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"RowsFit(d={self.mean.size}, n={self.n_pos + self.n_neg:,}, {self.pairs_used:,} pairs, "
            f"log_evidence={self.log_evidence:.3f}, {state} in {self.sweeps} sweeps)"
        )


def load_npz(path: Any) -> tuple[FloatArray, NDArray[Any]]:
    """The arrays ``X`` and ``y`` of a NumPy file."""
    with np.load(path) as file:
        return file["X"], file["y"]


def fit_rows(
    rows: Any,
    gamma: float,
    *,
    client: Client,
    y: Any = None,
    load: Callable[[Any], tuple[Any, Any]] = load_npz,
    prior_mean: ArrayLike = 0.0,
    prior_sd: ArrayLike = 1.0,
    pairs: int | None = None,
    power: float = 1.0,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    random_seed: Any = 0,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> RowsFit:
    """EP for linear scores of rows that are loaded on the workers of a Dask cluster.

    Parameters
    ----------
    rows
        A Dask array of shape (n, d) with known chunks; or a list of paths, each loaded by ``load`` on a worker; or a
        list of futures of ``(X, y)``, made by ``client.submit``, not scattered (scattered data die with a worker). The
        rows of a part must be a random sample of all rows: shuffle them when you write the parts.
    gamma
        Inverse temperature, multiplying the pair risk.
    client
        The cluster; one thread a worker is best, as many workers as there are cores.
    y
        Labels of a Dask array of rows, a Dask array too or a NumPy array: booleans, {0, 1} or {-1, 1}.
    load
        ``load(path) -> (X, y)``, by default that of a NumPy file with these two arrays.
    prior_mean, prior_sd
        Of the coefficients, independent: numbers, or vectors.
    pairs
        About how many pairs to compare, by default 200 times the number of rows.
    power, tolerance, max_sweeps, callback
        As in :func:`pymc_pacauc.arrays.fit`.
    random_seed
        Of the deal. The same seed and parts give the same result, whatever happens to the workers.
    """
    check_client(client)
    gamma = check_gamma(gamma)
    if not 0.0 <= power <= 1.0:
        raise ValueError(f"power must be in [0, 1]; got {power!r}.")
    raw = _raw_parts(client, rows, y, load)
    shapes = gather(client, submit(client, _look, raw))
    prior = _prior(shapes, prior_mean, prior_sd)
    counts = np.array([(found["positive"], found["negative"]) for found in shapes])
    n_pos, n_neg = (int(n) for n in counts.sum(axis=0))
    check_worth(n_pos * n_neg)
    parts: list[Any] = submit(client, _prepare, raw, prior, gamma)
    del raw  # loaded again if a worker dies; until then there is no need for two copies
    within = float(np.prod(counts.astype(float), axis=1).sum())
    wanted = PAIRS_A_ROW * (n_pos + n_neg) if pairs is None else float(pairs)
    total = float(n_pos) * n_neg
    stands_for = total / within
    seeds = np.random.SeedSequence(random_seed).spawn(2 * len(parts))
    # What the iteration asks of a problem
    target = cast(
        Problem,
        SimpleNamespace(gamma=gamma, pairs=SimpleNamespace(total_weight=total), scale_free=not np.any(prior.mean)),
    )
    q, sweeps = standard_gaussian(prior.mean.size), 0
    for stage, seeds_now in enumerate((seeds[: len(parts)], seeds[len(parts) :])):
        direction = None if stage == 0 else q.mean
        groups = max(1.0, within / wanted)
        dealt = [
            client.submit(_deal, part, direction, groups, seed, pure=False)
            for part, seed in zip(parts, seeds_now, strict=True)
        ]
        used = sum(gather(client, submit(client, _count, dealt)))

        def sums_at(q: NaturalGaussian, dealt: list[Any] = dealt) -> SiteSums:
            sent = (q.precision, q.shift, gamma / total, power, stands_for)
            return add_up(gather(client, submit(client, _sums, list(zip(parts, dealt, strict=True)), *sent)))

        solution = solve_fixed_point(
            gaussian_iteration(target, power, sums_at),
            q,
            POLICY,
            tolerance=PILOT_TOLERANCE if stage == 0 else tolerance,
            max_sweeps=max_sweeps,
            callback=callback,
            counted=sweeps,
        )
        q, sweeps = solution.point, sweeps + len(solution.history)
    if not solution.converged:
        warnings.warn(
            f"EP did not converge in {max_sweeps} sweeps: raise max_sweeps, or lower gamma.",
            ConvergenceWarning,
            stacklevel=2,
        )
    covariance = prior.whiten_rows(prior.whiten_rows(q.covariance).T)
    return RowsFit(
        mean=prior.color(q.mean),
        covariance=covariance,
        log_evidence=possible(solution.seen.log_evidence),
        expected_risk=solution.seen.expected_risk,
        converged=solution.converged,
        sweeps=sweeps,
        history=solution.history,
        n_pos=n_pos,
        n_neg=n_neg,
        pairs_used=int(used),
        natural=q,
        prior=prior,
    )


# -- in this process -------------------------------------------------------------------------------------------------


def _raw_parts(client: Client, rows: Any, y: Any, load: Callable[[Any], Any]) -> list[Any]:
    """A future of (X, y) for each part."""
    if hasattr(rows, "to_delayed"):
        return _of_dask_array(client, rows, y)
    if isinstance(rows, str) or not isinstance(rows, Sequence) or not rows:
        raise TypeError(
            "rows must be a Dask array, or a list of paths or of futures of (X, y); got "
            f"{'an empty list' if isinstance(rows, Sequence) and not rows else type(rows).__name__}."
        )
    if y is not None:
        raise ValueError("y is for a Dask array of rows; paths and futures hold their own.")
    futures = [isinstance(each, Future) for each in rows]
    if any(futures) and not all(futures):
        raise TypeError("rows mixes futures with paths: give one or the other.")
    return list(rows) if all(futures) else [client.submit(load, path, pure=False) for path in rows]


def _of_dask_array(client: Client, X: Any, y: Any) -> list[Future]:
    if X.ndim != 2:
        raise ValueError(f"rows must be a matrix of shape (n, d); got {X.ndim} dimension(s).")
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise ValueError("rows has chunks of unknown length: call rows.compute_chunk_sizes() first.")
    if y is None:
        raise ValueError("A Dask array of rows needs its labels: give y.")
    if len(y) != X.shape[0]:
        raise ValueError(f"rows has {X.shape[0]} rows but y has {len(y)} labels.")
    X = X.rechunk({1: X.shape[1]})
    if hasattr(y, "to_delayed"):
        labels = client.compute(y.rechunk((X.chunks[0],)).to_delayed().ravel().tolist())
    else:
        labels = hold(client, np.split(np.asarray(y), np.cumsum(X.chunks[0])[:-1]))
    blocks = client.compute(X.to_delayed().ravel().tolist())
    return [client.submit(_both, *each, pure=False) for each in zip(blocks, labels, strict=True)]


def _prior(shapes: list[dict[str, Any]], mean: ArrayLike, sd: ArrayLike) -> GaussianPrior:
    """The prior, after the refusals that the parts ask for."""
    widths = sorted({found["d"] for found in shapes})
    if len(widths) > 1:
        raise ValueError(f"The parts have different numbers of columns: {', '.join(map(str, widths))}.")
    for k, found in enumerate(shapes):
        if found["bad"]:
            raise ValueError(f"Part {k} has {found['bad']} NaN or infinite value(s): impute or drop them first.")
        if not (found["positive"] and found["negative"]):
            raise ValueError(
                f"Part {k} has one class only ({found['positive']} positive, {found['negative']} negative): every part "
                "compares its own rows. Shuffle the rows, or make fewer parts."
            )
    d = widths[0]
    mean, sd = (np.broadcast_to(numeric_array(*each), (d,)).copy() for each in (("prior_mean", mean), ("prior_sd", sd)))
    if not (np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0.0).all()):
        raise ValueError("prior_mean must be finite, and prior_sd finite and > 0.")
    return GaussianPrior(mean, sd)


# -- on the workers --------------------------------------------------------------------------------------------------


def _both(X: Any, y: Any) -> tuple[Any, Any]:
    return X, y


def _look(raw: tuple[Any, Any]) -> dict[str, Any]:
    X, y = np.asarray(raw[0], dtype=np.float64), np.asarray(raw[1])
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"A part must be (X, y) of shapes (n, d) and (n,); got {X.shape} and {y.shape}.")
    if not np.isin(y, (-1, 0, 1)).all():
        raise ValueError("The labels y must be booleans, {0, 1} or {-1, 1}.")
    positive = int((y > 0).sum())
    return {"d": X.shape[1], "positive": positive, "negative": y.size - positive, "bad": int((~np.isfinite(X)).sum())}


def _prepare(raw: tuple[Any, Any], prior: GaussianPrior, gamma: float) -> Problem:
    """The problem of a part, in whitened coefficients: all of them, so that those of all parts are the same."""
    X = np.asarray(raw[0], dtype=np.float64)
    shift = X @ prior.mean
    design, offset = prior.whiten_rows(X - X.mean(axis=0)), shift - shift.mean()
    d = X.shape[1]
    scores = LinearScores(design, offset, GaussianPrior(np.zeros(d), np.ones(d)))
    vars(scores)["reduced"] = ReducedScores(design, offset, None)  # not cut to the directions that this part reaches
    return Problem(scores, bipartite(np.asarray(raw[1]) > 0), gamma)


def _deal(problem: Problem, direction: FloatArray | None, groups: float, seed: np.random.SeedSequence) -> Deal:
    """The rows of a part in groups along a score, or at random."""
    rng = np.random.default_rng(seed)
    score = rng.random(problem.n) if direction is None else problem.X @ direction + problem.offset
    return deal(problem.pairs, score, groups, rng)


def _count(found: Deal) -> int:
    return found.n_pairs


def _sums(
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

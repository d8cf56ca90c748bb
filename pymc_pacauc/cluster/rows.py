"""EP on rows that do not fit on one machine: every worker compares the rows that it has loaded with each other.

Rows come in parts, files or chunks of a Dask array, in random order. On each part rows are put into groups along the
score (:mod:`pymc_pacauc.comparison.subsample`), and the sums of the sites of all its pairs are estimated; each pair
within a part counts N / W times, N the number of all pairs and W that of pairs within parts. Only q is sent to the
workers, and only d x d sums come back: O(pairs used * d + n d^2) per sweep, divided among the workers. Groups are
random for a pilot fit, then along the score that it found.

*Sampling error.* That of the subsample is estimated from other subsamples, as on one machine
(:mod:`pymc_pacauc.ep.subsample`): to first order where it is small, else by fits to them. In addition, which rows share
a part is random. That adds a variance proportional to 1 / W - 1 / N, and splitting the rows of every part randomly into
G groups would add one proportional to G / W - 1 / W. So the variance over such splits, at the fit's q, multiplied by
(1 - W / N) / (G - 1), estimates it, to first order; if it is too large for that, a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, cast

import dask.array
import numpy as np
from distributed import Client, Future
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.cluster import shards as on_worker
from pymc_pacauc.cluster.rounds import check_client, gather, submit
from pymc_pacauc.cluster.shards import check_worth, total
from pymc_pacauc.comparison.subsample import LEAST_ROWS
from pymc_pacauc.ep.loop import gaussian_iteration, policy_for, possible, solve_fixed_point
from pymc_pacauc.ep.plan import ACCURACIES, FINE_TOLERANCE, LENGTH_MATTERS, check_count
from pymc_pacauc.ep.posterior import NaturalGaussian, draw_natural, standard_gaussian
from pymc_pacauc.ep.results import EXACT, SamplingError, warn_of, warn_of_subsample
from pymc_pacauc.ep.subsample import LINEAR_ERROR, deviations, error_of_sampling, other_samples
from pymc_pacauc.ep.sweep import SiteSums
from pymc_pacauc.numerics import FloatArray, finite_array
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.scores import GaussianPrior


@dataclass(frozen=True, eq=False)
class RowsFit:
    """Gaussian approximation of the posterior of rows on a cluster; :func:`fit_rows` returns one.

    Attributes
    ----------
    mean : ndarray, shape (d,)
        Posterior mean of theta.
    covariance : ndarray, shape (d, d)
        Posterior covariance of theta.
    log_evidence : float
        EP's log evidence in nats, estimated from the pairs compared.
    expected_risk : float
        Posterior expectation of the pair risk, estimated from the pairs compared.
    converged : bool
        Whether the second fit converged.
    sweeps : int
        Number of sweeps over the pairs, those of the pilot fit included.
    history : tuple of dict
        Records of the sweeps of the second fit.
    n_pos, n_neg : int
        Rows of each class.
    pairs_used : int
        Number of pairs that were compared.
    sampling_error : SamplingError
        Error from using a subset of pairs; a :class:`~pymc_pacauc.ep.results.SamplingError`.
    natural : NaturalGaussian
        The approximation by its natural parameters.
    prior : GaussianPrior
        The prior of theta.

    See Also
    --------
    fit_rows : Compute it.

    Examples
    --------
    >>> from pymc_pacauc import cluster
    >>> fit = cluster.fit_rows(paths, gamma=1e4, client=client)  # doctest: +SKIP
    >>> fit.mean, fit.sampling_error.mean  # doctest: +SKIP
    """

    mean: FloatArray
    covariance: FloatArray = field(repr=False)
    log_evidence: float
    expected_risk: float
    converged: bool
    sweeps: int
    history: tuple[dict[str, float], ...] = field(repr=False)
    n_pos: int
    n_neg: int
    pairs_used: int
    sampling_error: SamplingError
    natural: NaturalGaussian = field(repr=False)
    prior: GaussianPrior = field(repr=False)

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently from the approximation.

        Parameters
        ----------
        draws : int
            Number of draws.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray, shape (draws, d)
            Draws of theta.

        See Also
        --------
        fit_rows : Compute the approximation.

        Examples
        --------
        >>> fit.draw(1000, np.random.default_rng(1)).shape  # doctest: +SKIP
        (1000, 20)
        """
        return self.prior.color(draw_natural(self.natural, draws, rng))


def load_npz(path: Any) -> tuple[FloatArray, NDArray[Any]]:
    """Load the arrays ``X`` and ``y`` of a NumPy file.

    Parameters
    ----------
    path : path-like
        A file that ``numpy.savez(path, X=X, y=y)`` wrote.

    Returns
    -------
    X : ndarray, shape (n, d)
        Covariates.
    y : ndarray, shape (n,)
        Labels.

    See Also
    --------
    fit_rows : Calls this for each path, or another function.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "part.npz")
    ...     np.savez(path, X=np.zeros((3, 2)), y=np.array([0, 1, 1]))
    ...     X, y = load_npz(path)
    >>> X.shape, y.tolist()
    ((3, 2), [0, 1, 1])
    """
    with np.load(path) as file:
        return file["X"], file["y"]


def fit_rows(
    rows: Any,
    gamma: float,
    *,
    client: Client,
    prior_mean: ArrayLike = 0.0,
    prior_sd: ArrayLike = 1.0,
    pairs: int | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    random_seed: Any = 0,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> RowsFit:
    """Fit linear scores by EP to rows that are loaded on the workers of a Dask cluster.

    Parameters
    ----------
    rows : list of paths, list of futures, or tuple (X, y)
        Paths of NumPy files with arrays ``X`` and ``y``, each loaded on a worker; or futures of ``(X, y)``, made by
        ``client.submit(load, path)``, not scattered (scattered data die with a worker); or a tuple of a Dask array of
        shape (n, d) with known chunks and its labels, a Dask or a NumPy array. Labels are booleans, {0, 1} or {-1, 1}.
        The rows of a part must be a random sample of all rows: shuffle them when you write the parts.
    gamma : float
        Inverse temperature, multiplying the pair risk.
    client : dask.distributed.Client
        The cluster; one thread a worker is best, as many workers as there are cores.
    prior_mean : float or array_like, shape (d,), default 0.0
        Prior mean of the coefficients.
    prior_sd : float or array_like, shape (d,), default 1.0
        Prior standard deviation of the coefficients, which are independent.
    pairs : int, optional
        About how many pairs to compare, by default 200 times the number of rows.
    tolerance : float, default 1e-06
        As in :func:`pymc_pacauc.arrays.fit`.
    max_sweeps : int, default 200
        As in :func:`pymc_pacauc.arrays.fit`.
    random_seed : int, Generator or None, default 0
        Seed of the subsample. The same seed and parts give the same result, whatever happens to the workers.
    callback : callable, optional
        Called after every sweep over the pairs with its record.

    Returns
    -------
    RowsFit
        Mean and covariance of the coefficients, log evidence and the error from using a subset of pairs.

    Raises
    ------
    ClusterError
        If the cluster is closed or has lost its workers.
    ValueError
        If parts have different columns, labels other than two classes, or values that are not finite.
    TypeError
        If ``client`` is no synchronous ``distributed.Client``, or ``rows`` are of none of the kinds above.

    Warns
    -----
    ConvergenceWarning
        If the ``sampling_error`` is large, or parts are so small that it is not known.

    See Also
    --------
    pymc_pacauc.EP : With ``client=``, for rows that one machine can hold.

    Examples
    --------
    >>> from dask.distributed import Client  # doctest: +SKIP
    >>> from pymc_pacauc import cluster
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> fit = cluster.fit_rows(["part0.npz", "part1.npz"], gamma=1e4, client=client)  # doctest: +SKIP
    >>> fit.converged  # doctest: +SKIP
    True
    """
    check_client(client)
    gamma = check_gamma(gamma)
    _check_pairs(pairs, LEAST_ROWS**2)
    raw = _raw_parts(client, rows)
    shapes = gather(client, submit(client, on_worker.look, raw))
    prior = _prior(shapes, prior_mean, prior_sd)
    counts = np.array([(found["positive"], found["negative"]) for found in shapes])
    n_pos, n_neg = (int(n) for n in counts.sum(axis=0))
    check_worth(n_pos * n_neg)
    within = int(np.prod(counts, axis=1).sum())
    _check_pairs(pairs, 2 * LEAST_ROWS * within / (n_pos + n_neg))
    parts = submit(client, on_worker.prepare, raw, prior, gamma)
    del raw  # loaded again if a worker dies; until then there is no need for two copies
    # The attributes of a problem that gaussian_iteration uses
    every = SimpleNamespace(n_pairs=n_pos * n_neg, total_weight=float(n_pos * n_neg))
    target = cast(Problem, SimpleNamespace(gamma=gamma, pairs=every, scale_free=not np.any(prior.mean)))
    groups = max(1.0, within / (ACCURACIES["fit"].pairs_per_row * (n_pos + n_neg) if pairs is None else float(pairs)))
    run = _Rows(client, parts, target, within, groups, np.random.SeedSequence(random_seed))
    q, sweeps = standard_gaussian(prior.mean.size), 0
    for stage in range(2):
        sampled = run.sampled(None if stage == 0 else q.mean)
        used = run.count(sampled)
        solution = solve_fixed_point(
            gaussian_iteration(target, 1.0, partial(run.sums, sampled)),
            q,
            policy_for(q.mean.size),
            tolerance=ACCURACIES["path"].tolerance if stage == 0 else tolerance,
            max_sweeps=max_sweeps,
            callback=callback,
            counted=sweeps,
        )
        q, sweeps = solution.point, sweeps + len(solution.history)
    error, said = EXACT, ""
    if used < every.n_pairs:
        error, said = run.error(q, solution.seen.log_evidence, max_sweeps)
    log_evidence = possible(solution.seen.log_evidence)
    advice = "Raise max_sweeps, or lower gamma."
    warn_of("EP", solution, len(solution.history), tolerance, log_evidence, advice, stacklevel=3)
    warn_of_subsample(error, used, every.n_pairs, said, "Ask for more pairs, in larger parts.", stacklevel=3)
    covariance = prior.whiten_rows(prior.whiten_rows(q.covariance).T)
    return RowsFit(
        mean=prior.color(q.mean),
        covariance=covariance,
        log_evidence=log_evidence,
        expected_risk=solution.seen.expected_risk,
        converged=solution.converged,
        sweeps=sweeps,
        history=solution.history,
        n_pos=n_pos,
        n_neg=n_neg,
        pairs_used=used,
        sampling_error=error,
        natural=q,
        prior=prior,
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows on the workers, in ``parts``, of the problem ``target``, with ``within`` pairs within parts."""

    client: Client
    parts: list[Future]
    target: Problem
    within: int
    groups: float
    seeds: np.random.SeedSequence

    def in_groups(self, function: Callable[..., Any], *arguments: Any) -> list[Future]:
        """Group or split the rows of every part, each with its own seed."""
        each = list(zip(self.parts, self.seeds.spawn(len(self.parts)), strict=True))
        return submit(self.client, function, each, *arguments)

    def sampled(self, direction: FloatArray | None) -> list[Future]:
        """Sample pairs of every part along the scores in a direction, or at random."""
        return self.in_groups(on_worker.sample_rows, direction, self.groups)

    def count(self, sampled: list[Future]) -> int:
        return int(sum(gather(self.client, submit(self.client, attrgetter("n_pairs"), sampled))))

    def sums(self, sampled: list[Future], q: NaturalGaussian, stands_for: float | None = None) -> SiteSums:
        """Estimate the sums over all pairs from those sampled, in one round; each counts ``stands_for`` times."""
        number = self.target.pairs.n_pairs
        each = number / self.within if stands_for is None else stands_for
        both = list(zip(self.parts, sampled, strict=True))
        return total(self.client, both, q, gamma=self.target.gamma / number, stands_for=each)

    def error(self, q: NaturalGaussian, log_evidence: float, max_sweeps: int) -> tuple[SamplingError, str]:
        """Estimate the error of the subsample and of the division into parts; also return a warning of the latter."""
        known, times = (self.target, q, log_evidence), other_samples(q.mean.size)
        others = [partial(self.sums, self.sampled(q.mean)) for _ in range(times)]
        error = error_of_sampling(*known, others, 1.0)
        if not (error.mean <= LINEAR_ERROR and q.mean.size > LENGTH_MATTERS):
            error = error_of_sampling(*known, others, 1.0, tolerance=FINE_TOLERANCE, max_sweeps=max_sweeps)
        outside = 1.0 - self.within / self.target.pairs.n_pairs
        if not outside:
            return error, ""
        into = max(2, math.ceil(self.groups))

        def split_sums(q: NaturalGaussian) -> SiteSums:
            split = self.in_groups(on_worker.split_rows, into)
            return self.sums(split, q, self.target.pairs.n_pairs / max(self.count(split), 1))

        found = deviations(*known, [split_sums] * times, 1.0)
        of_parts = [math.sqrt(outside / (into - 1) * float(np.mean(each.var(axis=0, ddof=1)))) for each in found]
        both = SamplingError(math.hypot(error.log_evidence, of_parts[0]), math.hypot(error.mean, of_parts[1]))
        if of_parts[1] <= LINEAR_ERROR:
            return both, ""
        return both, (
            f"The division of rows into parts leaves an error of about {of_parts[1]:.2g} posterior standard deviations "
            "in the mean, to first order: it may be several times as large. Write the rows into fewer, larger parts."
        )


def _check_pairs(pairs: int | None, least: float) -> None:
    if pairs is not None:
        check_count(pairs, least, "pairs", "None or", "leave pairs out")


def _raw_parts(client: Client, rows: Any) -> list[Any]:
    """Return a future of (X, y) for each part."""
    if isinstance(rows, tuple) and len(rows) == 2 and hasattr(rows[0], "to_delayed"):
        return _of_dask_array(client, *rows)
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise TypeError(
            "rows must be a list of paths or of futures of (X, y), or a tuple of a Dask array and its labels; got "
            f"{'an empty list' if isinstance(rows, Sequence) and not rows else type(rows).__name__}."
        )
    futures = [isinstance(each, Future) for each in rows]
    if any(futures) and not all(futures):
        raise TypeError("rows has futures and paths: give one or the other.")
    return list(rows) if all(futures) else [client.submit(load_npz, path, pure=False) for path in rows]


def _of_dask_array(client: Client, X: Any, y: Any) -> list[Future]:
    """Return a future of (X, y) for each chunk of rows of a Dask array."""
    if np.isnan([*X.shape, *np.shape(y)]).any():
        raise ValueError("rows has chunks of unknown length: call compute_chunk_sizes() of X and of y first.")
    if X.ndim != 2 or np.shape(y) != X.shape[:1]:
        raise ValueError(f"rows must be a matrix X and a label y for each row; got shapes {X.shape}, {np.shape(y)}.")
    X = X.rechunk({1: X.shape[1]})
    labels = dask.array.asarray(y).rechunk((X.chunks[0],))
    both = (client.compute(each.to_delayed().ravel().tolist()) for each in (X, labels))
    return [client.submit(tuple, [*each], pure=False) for each in zip(*both, strict=True)]


def _prior(shapes: list[dict[str, Any]], mean: ArrayLike, sd: ArrayLike) -> GaussianPrior:
    """Check what the workers found in the parts; return the prior."""
    widths = sorted({found["d"] for found in shapes})
    if len(widths) > 1:
        raise ValueError(f"rows has parts with different numbers of columns: {', '.join(map(str, widths))}.")
    for k, found in enumerate(shapes):
        if found["bad"]:
            raise ValueError(f"rows[{k}] has {found['bad']} NaN or infinite value(s): impute or drop them first.")
        if not (found["positive"] and found["negative"]):
            raise ValueError(
                f"rows[{k}] has one class only ({found['positive']} positive, {found['negative']} negative): rows are "
                "compared within their part. Shuffle the rows, or make fewer parts."
            )
    d = widths[0]
    scale = finite_array("prior_sd", sd, (d,))
    if not (scale > 0.0).all():
        raise ValueError(f"prior_sd must be > 0; got {sd!r}.")
    return GaussianPrior(finite_array("prior_mean", mean, (d,)), scale)

"""Compiled kernels, single-threaded BLAS, checked arrays and weighted populations: what all array modules share.

*Kernels* (:func:`kernel`): numba's ``@njit`` with the options that all loops of this package share, and a cache whose
faults are not errors. Compiled code is cached on disk, in ``__pycache__`` beside the source or in ``NUMBA_CACHE_DIR``,
so that only the first process compiles. numba raises if no folder is writable (a read-only installation and no home),
the disk is full or a cache file is truncated. Here the function is compiled again instead, with one warning per
process.

A signal that arrives while a kernel runs is handled where numba makes Python objects of its results: the handler's
KeyboardInterrupt stays set beside them, and Python raises a SystemError, which many callers take for a failed fit
(scikit-learn's ``cross_val_score`` does); numba may even return an incomplete tuple, and Python crash. So public
functions delay the signal until a kernel has returned (:mod:`~pymc_pacauc.interrupt`), and a SystemError that occurs
nevertheless is turned into the handler's exception again.

*BLAS threads* (:func:`single_threaded_blas`). The number of threads of a BLAS library is, in most builds, one number of
the process. Contexts that save, lower and restore it work only if they are nested: of two threads that overlap, the
second saves the lowered number, and restores that. Here the first of overlapping contexts lowers the number, and the
last one restores it. Both are done by the same thread, one of its own: threadpoolctl (from 3.8 on) requires that.

*Arrays* (:func:`numeric_array`, :func:`number_vector`): arguments as float64, or a ValueError that names the argument.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numba import config, njit
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from pymc_pacauc.interrupt import held_back

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

SEED = 1410  # of all randomness that nobody chooses: fixed before looking at any data, so that results are repeatable
# Monte Carlo draws behind a reported number: an error of 0.016 of its standard deviation; four times as many halve it.
DRAWS = 4000
NUMBERS_AT_ONCE = 2**21  # numbers processed together in loops over rows: 16 MB; doubled: twice the memory


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile ``function`` at its first call; ``options`` are numba's, such as ``fastmath``.

    No C function is made of it, and with ``no_cpython_wrapper=True`` none for Python: each takes a tenth of a second.
    """
    if function is None:
        return lambda function: kernel(function, **options)
    compiled: Any = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    if not config.DISABLE_JIT:
        compiled.__class__ = Kernel
        try:
            compiled._cache = KernelCache(function)  # what njit(cache=True) does with a FunctionCache
        except RuntimeError as error:  # no folder can be written
            warn_once(error)
    return compiled


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A numba function through which exceptions of signal handlers pass unchanged."""

    def __call__(self, *args: Any) -> Any:
        try:
            return held_back(super().__call__, *args)
        except SystemError as error:  # one for each array that numba made of its results, and the handler's own
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None


class KernelCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's cache of one function, which is disabled instead of raising.

    It consists of an index, which names a data file for each signature and is written first, and of the data files.
    After a fault the index is removed: it may be damaged, or name a data file that could not be written; the next
    process would then run the file that an older version of the source left under the same name.
    """

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # a damaged pickle may raise any exception
            self.remove_index()
            return None  # compiled and saved again

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except Exception as error:
            self.disable()
            self.remove_index()
            warn_once(error)

    def remove_index(self) -> None:
        with suppress(OSError):
            os.unlink(self._cache_file._index_path)


warned = False


def warn_once(error: Exception) -> None:
    global warned
    if not warned:
        warned = True
        warnings.warn(
            f"Compiled code cannot be kept on disk ({error}), so every process compiles it again, which takes seconds. "
            "To keep it, set the environment variable NUMBA_CACHE_DIR to a writable folder on a disk that is not full.",
            RuntimeWarning,
            stacklevel=3,
        )


_LOCK = Lock()
_inside = 0
_lowered: tuple[ThreadPoolExecutor, Any] | None = None  # the thread that lowered the number, and what restores it


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread; after the last of overlapping contexts it has as many as before the first."""
    global _inside, _lowered
    with _LOCK:
        if not _inside and any(library.num_threads > 1 for library in _blas().lib_controllers):
            keeper = ThreadPoolExecutor(1)
            _lowered = keeper, keeper.submit(_blas().limit, limits=1).result()
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if _lowered and not _inside:
                keeper, limits = _lowered
                keeper.submit(limits.restore_original_limits).result()
                keeper.shutdown()
                _lowered = None


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def slices(rows: int, numbers: int = 1, at_once: int | None = None) -> list[slice]:
    """Divide rows into slices of at most ``NUMBERS_AT_ONCE`` numbers, with ``numbers`` per row.

    Examples
    --------
    >>> slices(5, NUMBERS_AT_ONCE // 2), slices(0)
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)], [])
    """
    step = max(1, (NUMBERS_AT_ONCE if at_once is None else at_once) // max(numbers, 1))
    return [slice(start, start + step) for start in range(0, rows, step)]


def numeric_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as an array of float64; refuse other values, by the ``name`` of the argument.

    Masked values, complex numbers, dates and strings are refused. Missing values of pandas (NA, None) become NaN.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has {np.ma.count_masked(values)} masked value(s); impute or drop them first.")
    try:
        given = np.asarray(values)
        strings = given.dtype == object and any(isinstance(value, (str, bytes)) for value in given.flat)
        if strings or given.dtype.kind not in "biufO":
            raise TypeError(f"its type is {'a string' if strings else given.dtype}")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from error


def checked_rows(X: ArrayLike) -> FloatArray:
    """Return X as a matrix of finite numbers, (n, d); refuse anything else."""
    rows = numeric_array("X", X)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"X must be a matrix of shape (n, d) with n, d >= 1; got shape {rows.shape}.")
    bad = rows.size - int(np.isfinite(rows).sum())
    if bad:
        at = np.flatnonzero(~np.isfinite(rows).all(axis=0))[:5].tolist()
        raise ValueError(f"X has {bad} NaN or infinite value(s), in columns {at}; impute or drop them first.")
    return rows


def finite_array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return finite numbers of this shape, from one number for all of it too; refuse anything else, by ``name``."""
    array = numeric_array(name, value)
    if array.ndim and array.shape != shape:
        raise ValueError(f"{name} must be a scalar or have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; it has {int((~np.isfinite(array)).sum())} NaN or infinite value(s).")
    return np.broadcast_to(array, shape).copy()


def ranked(values: Any) -> Any:
    """Return ranks 0, 1, ... (NaN where missing) of an ordered ``pd.Categorical``; other values unchanged."""
    categories = getattr(values, "cat", values)
    if not (getattr(categories, "ordered", False) and hasattr(categories, "codes")):
        return values
    codes = np.asarray(categories.codes, dtype=np.float64)
    return np.where(codes < 0, np.nan, codes)


def number_vector(name: str, values: ArrayLike, what: str) -> FloatArray:
    """Return a vector of finite numbers; refuse other values, with ``what`` was expected in the message."""
    try:
        array = numeric_array(name, values)
    except ValueError as error:
        raise ValueError(f"{error} ({what}).") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector, {what}; got shape {array.shape}.")
    bad = int(np.sum(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{name} has {bad} NaN or infinite value(s) out of {array.size}: {what}.")
    return array


def check_probability(name: str, value: float) -> float:
    """Return a number strictly between 0 and 1; refuse anything else, by the ``name`` of the argument."""
    if not (np.ndim(value) == 0 and 0.0 < value < 1.0):
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}.")
    return float(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices, by the ``name`` of the argument."""
    *others, last = [f'"{each}"' for each in choices]
    if not isinstance(value, str) or f'"{value}"' not in (*others, last):
        raise ValueError(f"{name} must be {', '.join(others)} or {last}; got {value!r}.")


def check_whole(name: str, value: Any, least: int = 1, what: str = "a whole number") -> int:
    """Return an integer of at least ``least``; refuse anything else, with ``what`` was expected in the message."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be {what}, at least {least}; got {value!r}.")
    return int(value)


def tails(ci_prob: float) -> FloatArray:
    """Return the two probabilities whose quantiles enclose a central interval of probability ``ci_prob``, (2,)."""
    outside = 0.5 - 0.5 * check_probability("ci_prob", ci_prob)
    return np.array([outside, 1.0 - outside])


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Weighted populations, by log weights: -inf is a particle of weight zero, which counts in the mean that estimates the
# evidence, and is never resampled.


@np.errstate(under="ignore")
def log_mean_exp(log_weights: FloatArray) -> float:
    """Compute the log of the mean of the weights, without overflow."""
    top = float(log_weights.max())
    return top + float(np.log(np.mean(np.exp(log_weights - top))))


@np.errstate(under="ignore")
def normalise(log_weights: FloatArray) -> FloatArray:
    """Return weights that sum to one."""
    weights = np.exp(log_weights - log_weights.max())
    total: FloatArray = weights / weights.sum()
    return total


@np.errstate(under="ignore")
def effective_sample_size(log_weights: FloatArray) -> float:
    """Compute (sum w)^2 / sum w^2, between 1 and the number of particles.

    Examples
    --------
    >>> round(effective_sample_size(np.log([0.5, 0.5, 1e-300])), 6)
    2.0
    """
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights))


def systematic(weights: FloatArray, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Resample systematically: ``size`` equally spaced points in the cumulated weights, shifted by one uniform.

    Returns ancestor indices, (size,). Each particle is chosen ``size * weight`` times, rounded up or down.
    """
    cumulated = np.cumsum(weights)
    pointers = (rng.random() + np.arange(size)) * (cumulated[-1] / size)
    index = np.searchsorted(cumulated, pointers, side="right")
    last_alive = int(np.flatnonzero(weights)[-1])
    ancestors: NDArray[np.intp] = np.minimum(index, last_alive).astype(np.intp)
    return ancestors

"""``@kernel``: numba's ``@njit``, with the options that all loops of this package share and a cache that cannot fail.

Compiled code is kept on disk, in ``__pycache__`` beside the source or wherever ``NUMBA_CACHE_DIR`` says, so that only
the first process compiles. numba lets faults of that cache through to whoever calls the function: it refuses to define
one if no folder can be written (a read-only installation and no home), and calling one fails if the disk is full or a
file of the cache was cut short. A kernel needs no cache to be right. Here a fault costs the time to compile, and one
warning a process that says what to do.

A signal that arrives while a kernel runs is handled where numba makes Python objects of its results: the handler's
KeyboardInterrupt stays set beside them, and Python reports a SystemError, an Exception that many callers take for a
failed fit (scikit-learn's ``cross_val_score`` does); numba may even return a tuple with holes, and Python crash. So the
public functions hold the signal back until a kernel has returned (:mod:`~pymc_pacauc.interrupt`), and where a
SystemError comes up all the same it is turned into the handler's exception again.

Matrix algebra on one thread, for any number of threads that ask for it at the same time.

How many threads a BLAS library uses is, with most builds, one number for the whole process. Contexts that each save,
lower and restore it work only while they are nested: of two threads that overlap, the second saves what the first has
lowered, and leaves it so for good. Here a context that finds the number at one leaves it alone, and who lowered it
restores it. If others are still inside then, a thread of its own keeps the number low until the last of them has left.

The same thread lowers and restores always: threadpoolctl (from 3.8 on) listens to one thread at a time, and where the
number belongs to the thread (builds on OpenMP), contexts of several threads do not meet.

Numbers as they are given, turned into arrays of float64 or refused in words.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from threading import Event, Lock, Thread
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

NUMBERS_AT_ONCE = 2**21  # numbers that long loops over rows work on at a time: 16 MB; a matter of memory alone


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile ``function`` at its first call; ``options`` are numba's, such as ``fastmath``."""
    if function is None:
        return lambda function: kernel(function, **options)
    compiled: Any = njit(nogil=True, error_model="numpy", **options)(function)
    if not config.DISABLE_JIT:
        compiled.__class__ = Kernel
        try:
            compiled._cache = KernelCache(function)  # what njit(cache=True) does with a FunctionCache
        except RuntimeError as error:  # no folder can be written
            warn_once(error)
    return compiled


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """numba's compiled function; exceptions of signal handlers pass through it unchanged."""

    def __call__(self, *args: Any) -> Any:
        try:
            return held_back(super().__call__, *args)
        except SystemError as error:  # one for each array that numba made of its results, and the handler's own
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None


class KernelCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's cache of one function, which gives up instead of raising.

    It is an index, which names a data file for each signature and is written first, and the data files. After a fault
    the index goes: it may be broken itself, or name a data file which could not be written, in whose place the next
    process would find, and run, what an older version of the source left there under the same name.
    """

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # what a damaged pickle raises can be anything
            self.remove_index()
            return None  # compiled anew, and saved

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
_keeper: _Keeper | None = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Within the context BLAS has one thread; after the last of overlapping contexts, as many as before the first."""
    global _inside, _keeper
    with _LOCK:
        own = _one_thread() if any(library.num_threads > 1 for library in _blas().lib_controllers) else None
        if own:
            own.__enter__()
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if own:
                own.__exit__(None, None, None)
                if _inside and _keeper is None:
                    _keeper = _Keeper()
            if _keeper and not _inside:
                _keeper.leave()
                _keeper = None


class _Keeper(Thread):
    """A thread that keeps BLAS at one thread from when it is made until it is told to leave."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._lowered, self._told = Event(), Event()
        self.start()
        self._lowered.wait()

    def run(self) -> None:
        with _one_thread():
            self._lowered.set()
            self._told.wait()

    def leave(self) -> None:
        self._told.set()
        self.join()


def _one_thread() -> AbstractContextManager[object]:
    limits: AbstractContextManager[object] = _blas().limit(limits=1)
    return limits


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def slices(rows: int, numbers: int = 1) -> list[slice]:
    """Parts of so many rows, each of which takes so many ``numbers`` to work on, that fit in memory.

    Examples
    --------
    >>> slices(5, NUMBERS_AT_ONCE // 2), slices(0)
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)], [])
    """
    step = max(1, NUMBERS_AT_ONCE // max(numbers, 1))
    return [slice(start, start + step) for start in range(0, rows, step)]


def numeric_array(name: str, values: ArrayLike) -> FloatArray:
    """``values`` as an array of float64, or a ValueError that names the argument.

    Masked values, complex numbers, dates and strings have no place among float64, and are refused. Missing values of
    pandas (NA, None) are NaN.
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


def ranked(values: Any) -> Any:
    """Ranks 0, 1, ... (NaN where missing) of an ordered ``pd.Categorical`` or a Series of one; others as they are."""
    categories = getattr(values, "cat", values)
    if not (getattr(categories, "ordered", False) and hasattr(categories, "codes")):
        return values
    codes = np.asarray(categories.codes, dtype=np.float64)
    return np.where(codes < 0, np.nan, codes)


def number_vector(name: str, values: ArrayLike, what: str) -> FloatArray:
    """A vector of finite numbers, or a ValueError that says ``what`` was expected."""
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


# Weighted populations, carried by log-weights: ``-inf`` is a dead particle, which has weight zero, counts in the mean
# that estimates the evidence, and is never resampled.


@np.errstate(under="ignore")
def log_mean_exp(log_weights: FloatArray) -> float:
    """log of the mean of the weights, without overflow."""
    top = float(log_weights.max())
    return top + float(np.log(np.mean(np.exp(log_weights - top))))


@np.errstate(under="ignore")
def normalise(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one."""
    weights = np.exp(log_weights - log_weights.max())
    total: FloatArray = weights / weights.sum()
    return total


@np.errstate(under="ignore")
def effective_sample_size(log_weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2, between 1 and the number of particles.

    Examples
    --------
    >>> round(effective_sample_size(np.log([0.5, 0.5, 1e-300])), 6)
    2.0
    """
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights))


def systematic(weights: FloatArray, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Ancestor indices: one uniform, ``size`` equally spaced pointers into the cumulated weights.

    Each particle is chosen ``size * weight`` times on average, rounded up or down.
    """
    cumulated = np.cumsum(weights)
    pointers = (rng.random() + np.arange(size)) * (cumulated[-1] / size)
    index = np.searchsorted(cumulated, pointers, side="right")
    last_alive = int(np.flatnonzero(weights)[-1])
    ancestors: NDArray[np.intp] = np.minimum(index, last_alive).astype(np.intp)
    return ancestors

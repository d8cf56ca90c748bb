"""``@kernel``: numba's ``@njit``, with the options that all loops of this package share and a cache that cannot fail.

Compiled code is kept on disk, in ``__pycache__`` beside the source or wherever ``NUMBA_CACHE_DIR`` says, so that only
the first process compiles. numba lets faults of that cache through to whoever calls the function: it refuses to define
one if no folder can be written (a read-only installation and no home), and calling one fails if the disk is full or a
file of the cache was cut short. A kernel needs no cache to be right. Here a fault costs the time to compile, and one
warning a process that says what to do.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import config, njit
from numba.core.caching import FunctionCache

__all__ = ["kernel"]


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile ``function`` at its first call; ``options`` are numba's, such as ``fastmath``."""
    if function is None:
        return lambda function: kernel(function, **options)
    compiled: Any = njit(nogil=True, error_model="numpy", **options)(function)
    if not config.DISABLE_JIT:
        try:
            compiled._cache = KernelCache(function)  # what njit(cache=True) does with a FunctionCache
        except RuntimeError as error:  # no folder can be written
            warn_once(error)
    return compiled


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

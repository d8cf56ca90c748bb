"""Matrix algebra on one thread, for any number of threads that ask for it at the same time.

How many threads a BLAS library uses is, with most builds, one number for the whole process. Contexts that each save,
lower and restore it work only while they are nested: of two threads that overlap, the second saves what the first has
lowered, and leaves it so for good. Here a context that finds the number at one leaves it alone, and who lowered it
restores it. If others are still inside then, a thread of its own keeps the number low until the last of them has left.

The same thread lowers and restores always: threadpoolctl (from 3.8 on) listens to one thread at a time, and where the
number belongs to the thread (builds on OpenMP), contexts of several threads do not meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Event, Lock, Thread

from threadpoolctl import ThreadpoolController

__all__ = ["single_threaded_blas"]

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

"""Handling of Ctrl-C: fits called by the user return early; all other functions raise KeyboardInterrupt.

Nothing inside the package catches KeyboardInterrupt, so that a search, a selection, a calibration or a certificate
never takes an interrupted fit for a complete one. Two decorators of public functions define what the caller gets:

* :func:`returns_early`, of ``pm.fit`` and ``arrays.fit``. The first SIGINT sets a flag, which the loops of EP check
  after every sweep (:func:`interrupt_requested`); they stop, and the result is marked ``interrupted``. A second SIGINT
  raises KeyboardInterrupt at once.
* :func:`raises_interrupts`, of functions that make many fits. SIGINT raises KeyboardInterrupt and sets the flag,
  because Python ignores an exception raised inside a destructor or a callback of the garbage collector. The next sweep,
  or the end of the function, then raises it again.

Only the outermost decorator has an effect, only in the main thread, which signals reach, and only where the program
has no SIGINT handler of its own.

numba calls a Python function for each array of a result, and does not check whether it raised: a KeyboardInterrupt
there becomes a SystemError, or ends the interpreter. No handler of this module raises there; :class:`CarefulHandler`
does the same for code between functions of this package, such as PyMC's code that records a draw.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

UNCHECKED = "_numba_unpickle"  # the function that numba calls for arrays, in numba/core/serialize.py


class StoppedEarly(Exception):
    """Raised by :func:`check_interrupt` inside a fit that returns early, and caught by it."""


@dataclass
class _Request:
    """State of the outermost decorated function: whether SIGINT was ``made``, and whether it then returns ``early``.

    Nothing is raised unless it is ``running`` (not while handlers are exchanged), nor while ``held`` in compiled code,
    after which an exception that is ``due`` is raised.
    """

    early: bool
    made: bool = False
    running: bool = False
    held: bool = False
    due: bool = False

    def handle(self, number: int, frame: FrameType | None) -> Any:
        wait, self.made = self.early and not self.made, True
        if self.running and not wait:
            self.due = True
            if not _in_unchecked(frame):  # else the next sweep or kernel raises
                self.raise_due()

    def raise_due(self) -> None:
        if self.due and not self.held:
            self.due = False
            raise KeyboardInterrupt


def _in_unchecked(frame: FrameType | None) -> bool:
    """Return whether the interrupted code was called by numba, which does not check whether it raised."""
    while frame is not None and frame.f_code.co_name != UNCHECKED:
        frame = frame.f_back
    return frame is not None


def _careful(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as Python's own handler does; inside of numba, send the signal again a little later."""
    if _in_unchecked(frame):
        threading.Timer(0.001, _thread.interrupt_main).start()
    else:
        signal.default_int_handler(number, frame)


def _in_place_of_default() -> bool:
    """Return whether SIGINT reaches this thread, and its handler is Python's default or that of this module."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _careful)


class CarefulHandler:
    """Prevents SIGINT from raising inside of numba, as long as such an object exists; see the module docstring."""

    alive = 0

    def __init__(self) -> None:
        CarefulHandler.alive += 1
        if _in_place_of_default():
            _set_usual()

    def __del__(self) -> None:
        CarefulHandler.alive -= 1
        if _in_place_of_default():
            _set_usual()


def _set_usual() -> None:
    """Set the handler for code outside of our functions."""
    signal.signal(signal.SIGINT, _careful if CarefulHandler.alive else signal.default_int_handler)


_request: ContextVar[_Request | None] = ContextVar("interrupt request", default=None)


def interrupt_requested() -> bool:
    """Return whether a fit that returns early was interrupted; in other functions raise a KeyboardInterrupt that
    Python had ignored.
    """
    request = _request.get()
    if request is None or not request.made:
        return False
    if not request.early:
        raise KeyboardInterrupt
    return True


def held_back(call: Callable[..., R], *args: Any) -> R:
    """Return ``call(*args)``; a SIGINT during the call raises after it."""
    request = _request.get()
    if request is None:
        return call(*args)
    request.held = True
    try:
        return call(*args)
    finally:
        request.held = False
        request.raise_due()


def check_interrupt() -> None:
    """Raise :class:`StoppedEarly` if a fit that returns early was interrupted."""
    if interrupt_requested():
        raise StoppedEarly


def _decorated(function: Callable[P, R], early: bool) -> Callable[P, R]:
    @wraps(function)
    def interruptible(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _in_place_of_default():
            return function(*args, **kwargs)
        request = _Request(early)
        signal.signal(signal.SIGINT, request.handle)
        token = _request.set(request)
        try:
            request.running = True
            interrupt_requested()
            result = function(*args, **kwargs)
        except Exception as error:
            if request.made:
                raise KeyboardInterrupt from error
            raise
        finally:
            request.running = False
            _request.reset(token)
            _set_usual()
        if request.made and not (early and getattr(result, "interrupted", False)):
            raise KeyboardInterrupt
        return result

    return interruptible


def returns_early(fit: Callable[P, R]) -> Callable[P, R]:
    """Let the first SIGINT end ``fit`` after a sweep, with a result whose ``interrupted`` is true.

    A signal after the last sweep raises KeyboardInterrupt at the end of the fit.
    """
    return _decorated(fit, early=True)


def raises_interrupts(function: Callable[P, R]) -> Callable[P, R]:
    """Let a SIGINT during ``function`` raise KeyboardInterrupt, also where Python would ignore it."""
    return _decorated(function, early=False)

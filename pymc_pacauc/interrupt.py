"""Ctrl-C: a KeyboardInterrupt from everything but the outermost fits, which return early.

Nothing inside the package catches KeyboardInterrupt: a search, a selection, a calibration or a certificate cannot take
a fit cut short for a fit. Two decorators of public functions say what their caller gets:

* :func:`returns_early`, of ``pm.fit`` and ``arrays.fit``. The first SIGINT sets a flag, which the loops of EP ask for
  after every sweep (:func:`interrupt_requested`), and then stop; the result is marked ``interrupted``. The second one
  raises KeyboardInterrupt at once.
* :func:`raises_interrupts`, of functions that make many fits. SIGINT raises KeyboardInterrupt, as ever, and sets the
  flag: an exception that is raised inside a destructor or a callback of the garbage collector is ignored by Python, so
  that the signal would be lost. The next sweep, or the end of the function, raises it again.

Only the outermost decorator counts. None does anything in threads other than the main one, which signals do not reach,
or where the program has a SIGINT handler of its own.

numba calls a Python function for each array that it makes of a result, and does not look whether that raised: a
KeyboardInterrupt there becomes a SystemError, or ends the interpreter. No handler of this module raises there.
:class:`CarefulHandler` does as much for code between our functions, such as PyMC's that records a draw.
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
AGAIN = 0.001  # seconds until a signal that fell into it is sent again: chosen; twice as long is not felt


class StoppedEarly(Exception):
    """Raised by :func:`check_interrupt` inside a fit that returns early; no caller of the fit sees it."""


@dataclass
class _Request:
    """Whether SIGINT arrived, whether the outermost function returns early then, and whether it runs already or still.

    Before and after, while handlers are exchanged, the signal is noted and nothing is raised; nor while ``held`` in
    compiled code, after which what is ``due`` is raised.
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
            if not _in_unchecked(frame):  # else the next sweep raises, or the next kernel
                self.raise_due()

    def raise_due(self) -> None:
        if self.due and not self.held:
            self.due = False
            raise KeyboardInterrupt


def _in_unchecked(frame: FrameType | None) -> bool:
    """Whether numba called the code that a signal interrupts, and does not look whether it raised."""
    while frame is not None and frame.f_code.co_name != UNCHECKED:
        frame = frame.f_back
    return frame is not None


def _careful(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as Python's own handler does, or a little later where numba would not see it."""
    if _in_unchecked(frame):
        threading.Timer(AGAIN, _thread.interrupt_main).start()
    else:
        signal.default_int_handler(number, frame)


def _in_place_of_default() -> bool:
    """Whether SIGINT reaches this thread, and raises KeyboardInterrupt."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _careful)


class CarefulHandler:
    """Lets no SIGINT raise inside of numba, as long as such an object lives; see the module's docstring."""

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
    """Return whether a fit that returns early was asked to; raise KeyboardInterrupt where it was lost elsewhere."""
    request = _request.get()
    if request is None or not request.made:
        return False
    if not request.early:
        raise KeyboardInterrupt
    return True


def held_back(call: Callable[..., R], *args: Any) -> R:
    """Return ``call(*args)``; a SIGINT meanwhile raises after it, not inside."""
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
    """Raise :class:`StoppedEarly` if a fit that returns early was asked to."""
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

    A signal that comes too late for that raises KeyboardInterrupt after the fit.
    """
    return _decorated(fit, early=True)


def raises_interrupts(function: Callable[P, R]) -> Callable[P, R]:
    """Let a SIGINT during ``function`` raise KeyboardInterrupt, wherever it falls."""
    return _decorated(function, early=False)

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
"""

from __future__ import annotations

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
            self.raise_due()

    def raise_due(self) -> None:
        if self.due and not self.held:
            self.due = False
            raise KeyboardInterrupt


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
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
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
            signal.signal(signal.SIGINT, signal.default_int_handler)
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

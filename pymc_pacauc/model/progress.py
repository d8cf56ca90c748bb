"""Progress bars that appear only when the work turns out to take a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["LateBar", "track"]

BAR_AFTER = 1.0  # seconds

Item = TypeVar("Item")


class LateBar:
    """A context whose :meth:`update` shows a bar once a second has passed; ``columns`` follow the bar itself.

    Totals may be guesses: work that ends before, ends with a full bar.
    """

    def __init__(self, description: str, *columns: Any, show: bool = True):
        self._show, self._description, self._columns, self._started = show, description, columns, perf_counter()
        self._bar: Progress | None = None

    def __enter__(self) -> LateBar:
        return self

    def update(self, done: int, total: int, **fields: Any) -> None:
        if self._show and self._bar is None and done < total and perf_counter() - self._started > BAR_AFTER:
            text = TextColumn("{task.description}", markup=False)
            self._bar = Progress(text, BarColumn(), MofNCompleteColumn(), *self._columns, TimeElapsedColumn())
            self._bar.start()
            self._task = self._bar.add_task(self._description, total=total, **fields)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, **fields)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            if exception[0] is None:
                self._bar.update(self._task, total=self._bar.tasks[0].completed)
            self._bar.stop()


def track(items: Iterable[Item], description: str, total: int, show: bool = True) -> Iterator[Item]:
    """The items, with a bar once they have taken more than a second."""
    with LateBar(description, TimeRemainingColumn(), show=show) as bar:
        for done, item in enumerate(items, start=1):
            yield item
            bar.update(done, total)

"""A progress bar for loops that turn out to take a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["track"]

BAR_AFTER = 1.0  # seconds

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, total: int, show: bool = True) -> Iterator[Item]:
    """The items, with a bar once they have taken more than a second."""
    started, done = perf_counter(), 0
    bar: Progress | None = None
    try:
        for item in items:
            yield item
            done += 1
            if show and bar is None and done < total and perf_counter() - started > BAR_AFTER:
                columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
                bar = Progress(TextColumn("{task.description}"), *columns)
                bar.start()
                task = bar.add_task(description, total=total)
            if bar is not None:
                bar.update(task, completed=done)
    finally:
        if bar is not None:
            bar.stop()

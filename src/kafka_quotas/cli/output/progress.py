"""A progress bar on standard error, once something takes longer than a second, and only for a person."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kafka_quotas.cli.output.render import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SILENT_S = 1.0


class ApplyProgress:
    """A progress bar, called with the number done and the total.

    The end of the `with` block removes the bar.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._begin_s = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show the progress once the bar is wanted."""
        if self._bar is None and self._wanted(done, total):
            self._bar = self._drawn(total)
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def _wanted(self, done: int, total: int) -> bool:
        return done < total and time.monotonic() - self._begin_s >= SILENT_S and is_terminal(sys.stderr)

    def _drawn(self, total: int) -> "tuple[Progress, TaskID]":
        from rich.console import Console  # noqa: PLC0415 - only a long run pays for Rich
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        progress.start()
        return progress, progress.add_task(self._description, total=total)

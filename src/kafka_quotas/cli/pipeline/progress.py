"""The progress of a pipeline's job on standard error, and notes about the engine.

It shows the stage, a bar and the rows so far, and is off where standard error is no terminal.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka_quotas.cli.output.render import is_terminal, write
from kafka_quotas.pipeline.engine.choice import EngineChoice
from kafka_quotas.pipeline.engine.job import JobProgress, Watch, ignore_progress
from kafka_quotas.pipeline.engine.runner import EventsWatcher


def engine_notes() -> Callable[[EngineChoice], None]:
    """Return a function that reports the chosen engine and the reason.

    It reports the same engine once, for any number of jobs.
    """
    noted: set[EngineChoice] = set()

    def note(choice: EngineChoice) -> None:
        if choice not in noted:
            noted.add(choice)
            write(f"note: using the {choice.engine} engine ({choice.reason})", sys.stderr)

    return note


@contextmanager
def job_progress() -> Iterator[Watch]:
    """Yield a function that draws the bar, until the context ends."""
    if not is_terminal(sys.stderr):
        yield ignore_progress
        return
    from rich.console import Console  # noqa: PLC0415 - only a live view pays for Rich
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr, highlight=False), transient=True) as bar:
        task = bar.add_task("", total=None, rows="")

        def draw(progress: JobProgress) -> None:
            rows = f"{progress.rows:,} rows" if progress.rows else ""
            total = progress.total or None
            bar.update(task, description=progress.stage, completed=progress.done, total=total, rows=rows)

        yield draw


@contextmanager
def job_watcher() -> Iterator[EventsWatcher]:
    """Yield a watcher of a job that draws the bar and notes the chosen engine once."""
    with job_progress() as progress:
        yield EventsWatcher(progress=progress, chosen=engine_notes())


def show_stage(watcher: EventsWatcher, stage: str) -> None:
    """Name the stage that begins, of which nothing is counted."""
    watcher.progress(JobProgress(stage=stage, done=0, total=0))

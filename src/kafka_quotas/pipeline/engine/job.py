"""A job over recorded events, its progress, and the choice of the engine that runs it.

Both engines give the same rows. The local one (Arrow, numba) is one process tree on this machine and faster there.
Spark takes more than one machine should, on any master. The libraries come with the extra `spark`, which users who only
set quotas do not need.

Invariant: all events of clients that may share a bucket are in one task.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.extras import require_extra

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as one function over slices of events, for this machine and for Spark's workers."""

    name: str
    shift: int
    """The bits of a client's number in which clients that share a bucket may differ."""
    columns: tuple[str, ...]
    """Columns of events that a task reads."""
    task: "Callable[[Iterable[pa.Table]], pa.Table]"
    """Returns the rows of one task, given its events in slices.

    Events of a client come by time, with whole seconds in a slice.
    """
    schema: "pa.Schema"
    """Schema of these rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of one stage of a job."""

    stage: str
    """What the job is doing."""
    done: int
    """Finished parts."""
    total: int


Watch = Callable[[JobProgress], None]
"""Receives the progress of a job, in the thread that runs the job's command."""


def ignore_progress(progress: JobProgress) -> None:
    """Do nothing, for callers that do not show progress."""
    del progress


LOCAL_LIMIT_EVENTS: Final = 5_000_000
"""The largest number of events for which the start of Spark takes longer than the work."""


class Engine(StrEnum):
    """The choices of `--engine`."""

    LOCAL = "local"
    SPARK = "spark"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine of a job, LOCAL or SPARK, and the reason for the user."""

    engine: Engine
    reason: str


def choose_engine(asked: Engine, *, events: int, master: str | None, is_remote: bool = False) -> EngineChoice:
    """Choose the engine for a job over about a number of `events`.

    `master` is the Spark master that the user named, None for none. Data is remote if it is on no file system of this
    machine.
    """
    if asked is not Engine.AUTO:
        return EngineChoice(engine=asked, reason="as requested")
    if master is not None:
        return EngineChoice(engine=Engine.SPARK, reason=f"--master {master} was given")
    if not is_remote and events <= LOCAL_LIMIT_EVENTS:
        return EngineChoice(engine=Engine.LOCAL, reason=f"about {events:,} events; Spark would be slower")
    reason = "the data is remote" if is_remote else f"about {events:,} events, more than {LOCAL_LIMIT_EVENTS:,}"
    if missing := missing_for_spark():
        return EngineChoice(engine=Engine.LOCAL, reason=f"{reason}, but there is no {missing} here")
    return EngineChoice(engine=Engine.SPARK, reason=reason)


def missing_for_spark() -> str | None:
    """Return what Spark would need and does not find on this machine, None if it is all there."""
    if find_spec("pyspark") is None:
        return "PySpark"
    home = os.environ.get("JAVA_HOME")
    return None if shutil.which("java", path=f"{home}/bin" if home else None) else "Java"


LIBRARIES: Final = ("numpy", "numba", "pyarrow", "deltalake", "duckdb", "orjson")
"""Libraries that every job needs on any engine; jobs on Spark need PySpark as well."""
LIBRARIES_OF_EXECUTORS: Final = ("numpy", "numba", "pyarrow", "deltalake", "orjson")
"""Libraries that Spark's executors need."""


def require_libraries(*names: str) -> None:
    """Check that libraries are installed, by default those of every job.

    Raises:
        UsageError: One is not installed. The hint has the command that installs it.
    """
    require_extra("spark", *(names or LIBRARIES), needed_by="the pipeline needs")

"""The choice of the engine for a job, and the reason for it.

Both give the same rows. The local one (Arrow, numba) is one process tree on this machine and faster there.
Spark takes more than one machine should, on any master. The libraries come with the extra `spark`, which users who only
set quotas do not need.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.core.extras import require_extra

LOCAL_LIMIT_EVENTS: Final = 100_000_000
"""The largest number of events that the local engine was measured with."""


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


def choose_engine(asked: Engine, *, events: int, master: str | None) -> EngineChoice:
    """Choose the engine for a job.

    The job reads about `events` events. `master` is the Spark master that the user named, None for none.
    """
    if asked is not Engine.AUTO:
        return EngineChoice(engine=asked, reason="asked for")
    if master is not None:
        return EngineChoice(engine=Engine.SPARK, reason=f"--master {master} was given")
    if events > LOCAL_LIMIT_EVENTS:
        return EngineChoice(engine=Engine.SPARK, reason=f"about {events:,} events, more than {LOCAL_LIMIT_EVENTS:,}")
    return EngineChoice(engine=Engine.LOCAL, reason=f"about {events:,} events, which one machine takes faster")


LIBRARIES: Final = ("numpy", "pyarrow", "orjson")
"""Libraries that every job needs on any engine; jobs on Spark need PySpark as well."""


def require_libraries(*names: str) -> None:
    """Check that libraries are installed, by default those of every job.

    Raises:
        UsageError: One is not installed. The hint has the command that installs it.
    """
    require_extra("spark", *(names or LIBRARIES), needed_by="the pipeline needs")

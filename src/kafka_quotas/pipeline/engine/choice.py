"""Which engine does a job, and why.

Both give the same rows. The local one (Arrow, numba, DuckDB) is one process tree on this machine and faster there;
Spark takes what no single machine should, on any master.

The libraries of the extra `spark`, which whoever only sets quotas does without.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Final

from kafka_quotas.core.errors import UsageError

LOCAL_LIMIT_EVENTS: Final = 100_000_000
"""What the local engine is meant for; it was measured up to there."""


class Engine(StrEnum):
    """The choices of `--engine`."""

    LOCAL = "local"
    SPARK = "spark"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine that does the job, LOCAL or SPARK, and the reason in words for the user."""

    engine: Engine
    reason: str


def choose_engine(asked: Engine, *, events: int, master: str | None) -> EngineChoice:
    """The engine for a job over about `events` events; `master` is the Spark master that was named, None for none."""
    if asked is not Engine.AUTO:
        return EngineChoice(engine=asked, reason="asked for")
    if master is not None:
        return EngineChoice(engine=Engine.SPARK, reason=f"--master {master} was given")
    if events > LOCAL_LIMIT_EVENTS:
        return EngineChoice(engine=Engine.SPARK, reason=f"about {events:,} events, more than {LOCAL_LIMIT_EVENTS:,}")
    return EngineChoice(engine=Engine.LOCAL, reason=f"about {events:,} events, which one machine takes faster")


LIBRARIES: Final = ("numpy", "pyarrow", "orjson")
"""What every job needs on any engine; those that Spark runs need PySpark as well."""


def require_libraries(*names: str) -> None:
    """Check that libraries are installed, by default those of every job.

    Raises:
        UsageError: One is not; it says what to install.
    """
    missing = [name for name in names or LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the pipeline needs {' and '.join(missing)}, not installed here", hint="pip install 'kafka-quotas[spark]'"
        )

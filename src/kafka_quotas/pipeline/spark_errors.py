"""Spark's errors in our words: one line, the cause rather than the layers it came through."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError

_FULL: Final = "No space left on device"
_MARKS: Final = ("Error: ", "Exception: ")
_LONGEST: Final = 300


@contextmanager
def spark_errors(doing: str, *, log_file: Path) -> Iterator[None]:
    """Nothing; in the block, what Spark raises becomes a `KafkaQuotasError` that says what was being done."""
    try:
        yield
    except (KafkaQuotasError, KeyboardInterrupt):
        raise
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        text = str(error)
        if _FULL in text:
            raise KafkaQuotasError(
                f"no room left while {doing}", hint="nothing was changed; make room, also for Spark's spark.local.dir"
            ) from error
        raise KafkaQuotasError(f"Spark failed while {doing}: {_cause(text, error)}", hint=f"see {log_file}") from error


def _cause(text: str, error: Exception) -> str:
    """The last line that names an error of a Python worker, else the first line there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if any(mark in line for mark in _MARKS) and not line.startswith("at ")]
    python = [line for line in named if not line.startswith(("org.", "java.", "Caused by", "scala."))]
    chosen = python[-1] if python else (lines[0] if lines else type(error).__name__)
    return chosen[:_LONGEST]

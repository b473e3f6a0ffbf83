"""Spark's errors in one line: the cause rather than the layers above it, and what helps.

Where memory or a disk is short, Spark often reports what broke after it: a stopped context, a null pointer of its own,
a connection that nobody answers. The log of its Java then has the cause.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.tables.lake import ConflictError, hint_of

PY4J: Final = "An error occurred while calling"
_NETWORK: Final = "Py4JNetworkError"
_NO_ANSWER: Final = "does not exist in the JVM"
"""What py4j says of its own classes once Java is gone."""
_CONFLICT: Final = "DELTA_CONCURRENT"
_FULL: Final = ("No space left on device", "Disk quota exceeded")
_MARKS: Final = ("Error: ", "Exception: ")
_ALONE: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)")
"""A Python error without a message."""
_CAUSED: Final = "Caused by: "
_OF_JAVA: Final = ("org.", "java.", "scala.", "software.", "com.", "io.", _CAUSED, PY4J)
_LONGEST: Final = 300
_MEMORY: Final = re.compile(
    r"(?:OutOfMemoryError|OutOfDirectMemoryError|OutOfMemoryException): (?P<which>[^\n(]*[^\n(.: ])"
    r"|(?P<overhead>GC overhead limit exceeded)|OutOf(?:Direct)?Memory"
)
_LOGGED: Final = re.compile(
    r"(?: ERROR [^\n]*\n(?![^\n]* WARN )|Exception in thread )[^\n]*OutOf(?:Direct)?Memory[^\n]*"
)
"""An error of Spark's Java itself: those of executors elsewhere, whose tasks run again, are warnings in its log."""
_EXECUTOR: Final = re.compile(r"\(\S+ executor \d+\): [^\n]*(?:OutOf\w*Memory|GC overhead)")
"""A task that failed in an executor of a cluster, which the driver of a local session is not."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failure of Spark by the words of its error."""

    words: re.Pattern[str]
    why: str
    """What to say, with the groups of the words."""
    hint: str


_PYTHON_MEMORY: Final = (
    "fewer tasks at a time leave each more: --master local[1], on a cluster fewer spark.executor.cores or more "
    "spark.executor.memoryOverhead by --spark-conf"
)
_FAILURES: Final = (
    _Failure(
        re.compile(r"(results? of \d+ tasks? \([^)]*\)) is bigger than (?:spark\.driver\.maxResultSize|local\S*)"),
        r"the \1 are more than spark.driver.maxResultSize",
        "--spark-conf spark.driver.maxResultSize=2g allows more, which spark.driver.memory must hold",
    ),
    _Failure(
        re.compile(r"ExecutorLostFailure[^\n]*code:? 52\b"),
        "an executor's Java ran out of memory",
        "give executors more: --spark-conf spark.executor.memory=4g",
    ),
    _Failure(
        re.compile(r"ExecutorLostFailure[^\n]*(?:code:? 137\b|memory limits|OOMKilled|physical memory)"),
        "an executor was killed, as systems do where memory is short",
        "--spark-conf spark.executor.memoryOverhead=1g gives its Python workers more, fewer spark.executor.cores too",
    ),
    _Failure(
        re.compile(r"ExecutorLostFailure \([^)]*\) Reason: ([^\n]*)"),
        r"an executor was lost: \1",
        "its own log, on its machine, says more",
    ),
    _Failure(
        re.compile(r"Python worker exited unexpectedly"),
        "a Python worker was killed or crashed, as where memory is short",
        _PYTHON_MEMORY,
    ),
    _Failure(re.compile(r"^\S*MemoryError\b", re.MULTILINE), "a Python worker ran out of memory", _PYTHON_MEMORY),
)


@contextmanager
def delta_conflicts() -> Iterator[None]:
    """Convert Spark's error about a change of a Delta table that came first to a `ConflictError`."""
    try:
        yield
    except Exception as error:  # py4j's and gRPC's
        if _CONFLICT in str(error):
            raise ConflictError(str(error)) from error
        raise


@contextmanager
def spark_errors(doing: str, *, log_file: Path) -> Iterator[None]:
    """Convert Spark's errors in the block to a `KafkaQuotasError` that names the operation."""
    begin = log_file.stat().st_size if log_file.exists() else 0
    try:
        yield
    except (KafkaQuotasError, ConflictError, KeyboardInterrupt):
        raise
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        if any(words in str(error) for words in _FULL):
            raise KafkaQuotasError(
                f"no room left while {doing}", hint="nothing was changed; make room, also for Spark's spark.local.dir"
            ) from error
        why, hint = failure_of(error, written_after(log_file, begin))
        hint = "; ".join(filter(None, (hint, f"see {log_file}")))
        raise KafkaQuotasError(f"Spark failed while {doing}: {why}", hint=hint) from error


def written_after(log_file: Path, begin: int) -> str:
    """Return what was written to a log after its first `begin` bytes, an empty text where there is no log."""
    if not log_file.exists():
        return ""
    with log_file.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def failure_of(error: Exception, logged: str) -> tuple[str, str | None]:
    """Return the cause of an error of Spark's, and what helps, None where nothing is known.

    `logged` is what Spark's Java logged meanwhile.
    """
    text, memory = str(error), _LOGGED.search(logged)
    short = next((each for each in (text, memory[0] if memory else "") if _MEMORY.search(each)), "")
    if found := _MEMORY.search(short):
        which = found["which"] or found["overhead"]
        whose, setting = "its", "--spark-conf spark.driver.memory=4g"
        if _EXECUTOR.search(text):
            whose, setting = "an executor's", "--spark-conf spark.executor.memory=4g"
        shown = f" ({which.strip()})" if which else ""
        return f"{whose} Java ran out of memory{shown}", f"give it more: {setting}"
    for each in _FAILURES:
        if match := each.words.search(text):
            return match.expand(each.why)[:_LONGEST], each.hint
    is_gone = isinstance(error, ConnectionError) or type(error).__name__ == _NETWORK or _NO_ANSWER in text
    why = "its Java ended" if is_gone else _cause(text, error)
    return why, hint_of(why)


def _cause(text: str, error: Exception) -> str:
    """Return the last error of a Python worker, else the innermost cause, else the first line.

    What is indented are calls, and errors that Java met while it handled the one that counts.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line[0].isspace()]
    named = [line.strip(": ") for line in lines if _ALONE.fullmatch(line) or any(mark in line for mark in _MARKS)]
    python = [line for line in named if not line.startswith((*_OF_JAVA, "at "))]
    inner = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)]
    first = [line.strip(": ") for line in lines if not line.startswith(PY4J)]
    return next((each[-1] for each in (python, inner, first[:1]) if each), type(error).__name__)[:_LONGEST]

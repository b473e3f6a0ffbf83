"""The changes of a data folder, its compaction, and its conversion from the earlier form."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.engine.runner import EventsRequest
from kafka_quotas.pipeline.tables.lake import Lake, lake_url


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """One change of a data folder."""

    number: int
    at_ms: int
    """When it was made, in ms since 1970."""
    operation: str
    """One of ingest, replace, convert and compact."""
    files: int
    """Files that it read."""
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """The result of a compaction."""

    files_before: int
    files_after: int
    removed: int
    """Old files that were deleted."""


def history(data: str) -> list[PastChange]:
    """Return the changes of a data folder, the latest first.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415 - loads Arrow

    found: dict[int, PastChange] = {}
    for row in FolderSnapshot.of(Lake(url=lake_url(data))).changes.to_pylist():
        number = row["sequence"]
        files = (found[number].files if number in found else 0) + bool(row["path"])
        found[number] = PastChange(
            number=number, at_ms=row["at_ms"], operation=row["operation"], files=files, events=row["events"]
        )
    return [found[number] for number in sorted(found, reverse=True)]


def recorded_span(request: EventsRequest) -> tuple[int, int] | None:
    """Return the times of the first and the last event in ms since 1970, None without events.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.arrow import compute as pc  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.tables.schemas import CLIENTS  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415

    snapshot = FolderSnapshot.of(Lake(url=lake_url(request.data)), request.as_of)
    clients = snapshot.read(CLIENTS, columns=["first_ms", "last_ms"])
    if not clients.num_rows:
        return None
    return pc.min(clients["first_ms"]).as_py(), pc.max(clients["last_ms"]).as_py()


def compact(data: str, *, retention_hours: int, done: Callable[[int, int], None]) -> CompactResult:
    """Merge small files, drop rows of killed ingests, and delete files that are not needed.

    `done` is called with the number of merged days and of all.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The tables can't be changed, or another change came in between.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.ingest import compaction  # noqa: PLC0415 - loads Arrow

    before, after, removed = compaction.compact(
        Lake(url=lake_url(data)),
        at_ms=round(time.time() * 1000),
        random=secrets.randbits(20),
        retention_hours=retention_hours,
        done=done,
    )
    return CompactResult(files_before=before, files_after=after, removed=removed)


def convert(old: Path, data: str, *, done: Callable[[int, int], None]) -> int:
    """Convert a data folder of the earlier form and return its number of events.

    `done` is called with the number of converted ingests and of all.

    Raises:
        UsageError: The folder is none of the earlier form.
        KafkaQuotasError: A file can't be read or written.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.ingest import conversion  # noqa: PLC0415 - loads Arrow

    return conversion.convert(old, Lake(url=lake_url(data)), done=done)

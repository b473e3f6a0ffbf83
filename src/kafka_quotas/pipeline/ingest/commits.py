"""The commits of ingests: one of the table `events` decides, and all else follows from it.

A commit of `events` adds the rows of an ingest together with a row that says what was read (`IngestRecord`), takes out
the rows of files that were read anew, and has Delta's transaction identifier `TRANSACTIONS` with the number of the
ingest. It holds only if nothing else was committed since the table was opened: else it looks at what others have read,
and commits after them, or begins anew.

The other tables are derived: the record names their files, which are added after the commit, or by the next ingest if
this one was killed between. Their own transaction identifiers say how far they are.

Invariant: any Delta reader of `events` sees every line once, at any moment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from kafka_quotas.pipeline.ingest.plan import KnownFiles, ReadFile
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import PARTITION, TRANSACTIONS, ConflictError, Lake, lake_errors
from kafka_quotas.pipeline.tables.packed_events import pack, record_rows, unpack
from kafka_quotas.pipeline.tables.schemas import DERIVED_TABLES, EVENTS, PACKED_EVENTS, TableSchema
from kafka_quotas.pipeline.tables.staged_files import StagedFile, read_staged, remove_staged, write_staged

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SOURCES: Final = "sources"
_MANY_FILES: Final = 32
_SMALL_BYTES: Final = 1 << 23
_MERGED_BYTES: Final = 1 << 24
"""Bytes of files that are merged together: as loose rows they take some thirty times as much memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRecord:
    """What one ingest did."""

    number: int = 0
    """Number of the ingest, from 1."""
    at_ms: int
    files: tuple[ReadFile, ...]
    replaced: tuple[str, ...] = ()
    """Names of files in rows of earlier ingests, whose place its rows take."""
    staged: Mapping[str, Sequence[StagedFile]] = field(default_factory=dict)
    """Its files of derived tables, by table."""


_RECORD: Final = msgspec.json.Decoder(IngestRecord)


def records_of(lake: Lake) -> list[IngestRecord]:
    """Return what ingests have read into a folder so far, in their order."""
    files = _files_of(lake, lake.table(PACKED_EVENTS))
    own = files.filter(pc.is_null(files[f"partition.{PARTITION}"]))["path"].to_pylist() if files.num_rows else []
    texts = [each for path in own for each in read_staged(lake, PACKED_EVENTS, path, [_SOURCES])[_SOURCES].to_pylist()]
    return sorted(map(_RECORD.decode, filter(None, texts)), key=lambda each: each.number)


def commit(
    lake: Lake,
    record: IngestRecord,
    events: Sequence[StagedFile],
    before: Sequence[IngestRecord],
    is_read: Callable[[KnownFiles], bool],
) -> int | None:
    """Commit an ingest after all that came since `before`, and return Delta's version of `events`.

    `is_read` checks whether others may have read one of its files.

    Returns:
        None if another ingest may have read one of its files meanwhile.
    """
    known = before[-1].number if before else 0
    later: list[IngestRecord] = []
    while True:
        opened = lake.table(PACKED_EVENTS)
        number = later[-1].number if later else known
        if (opened.transaction_version(TRANSACTIONS) or 0) > number:
            later = [each for each in records_of(lake) if each.number > known]
            if is_read(KnownFiles(file for each in later for file in each.files)):
                remove_staged(lake, PACKED_EVENTS, events)
                for table in DERIVED_TABLES:
                    remove_staged(lake, table, record.staged.get(table.name, ()))
                return None
            continue
        numbered = replace(record, number=number + 1)
        added, removed = without_files(lake, PACKED_EVENTS, opened, record.replaced)
        text = msgspec.json.encode(numbered).decode()
        added += write_staged(lake, PACKED_EVENTS, record_rows(text, at_ms=record.at_ms))
        try:
            version = lake.commit(PACKED_EVENTS, opened, [*events, *added], removed, number=numbered.number)
        except ConflictError:
            remove_staged(lake, PACKED_EVENTS, added)
            continue
        # With what came meanwhile: the other tables take ingests in their order only, and pass over no other.
        derive(lake, [*later, numbered])
        return version


def derive(lake: Lake, records: Iterable[IngestRecord]) -> None:
    """Add to the other tables what ingests have read for them and is not there yet."""
    known = list(records)
    for table in DERIVED_TABLES:
        own = [each for each in known if each.replaced or each.staged.get(table.name)]
        while own:
            opened = lake.table(table)
            done = opened.transaction_version(TRANSACTIONS) or 0
            own = [each for each in own if each.number > done]
            for record in own[:1]:
                added, removed = without_files(lake, table, opened, record.replaced)
                try:
                    staged = [*record.staged.get(table.name, ()), *added]
                    lake.commit(table, opened, staged, removed, number=record.number)
                except ConflictError:
                    remove_staged(lake, table, added)


def merge_small_files(lake: Lake, written: Iterable[StagedFile] = ()) -> None:
    """Write small files of a day as one where there are many, the rows of a client and hour as one.

    A day that had such files before an ingest has `written` others is merged however few they are, if they are small
    together. Each commit merges a day's smallest files, at most `_MERGED_BYTES` of them. Another commit that comes
    first prevents it until the next ingest.
    """
    own = {each.path for each in written}
    opened = lake.table(PACKED_EVENTS)
    files = _files_of(lake, opened)
    small = files.filter(pc.less(files["size_bytes"], _SMALL_BYTES)) if files.num_rows else files
    by_day: dict[Any, list[tuple[int, str]]] = {}
    for row in small.to_pylist():
        by_day.setdefault(row[f"partition.{PARTITION}"], []).append((row["size_bytes"], row["path"]))
    for day, found in by_day.items():
        others = sum(path not in own for _, path in found)
        bound = _MERGED_BYTES if len(found) >= _MANY_FILES else _SMALL_BYTES if 0 < others < len(found) else 0
        found.sort()
        most = sum(total <= bound for total in accumulate(size for size, _ in found))
        if most < 2:
            continue
        paths = [path for _, path in found[:most]]
        columns = [name for name in PACKED_EVENTS.column_names if name != PARTITION]
        rows = pa.concat_tables(read_staged(lake, PACKED_EVENTS, path, columns) for path in paths)
        if day is None:
            no_days = pa.nulls(rows.num_rows, pa.date32())
            rows = rows.append_column(PARTITION, no_days).select(PACKED_EVENTS.column_names)
        else:
            rows = pa.Table.from_batches([pack(unpack(rows, EVENTS.column_names))])
        added = write_staged(lake, PACKED_EVENTS, rows)
        try:
            lake.commit(PACKED_EVENTS, opened, added, paths, is_change=False)
        except ConflictError:
            remove_staged(lake, PACKED_EVENTS, added)
            return


def without_files(
    lake: Lake, table: TableSchema, opened: "DeltaTable", names: Sequence[str]
) -> tuple[list[StagedFile], list[str]]:
    """Write the files of a table that have rows of some sources again, without these.

    Returns:
        The new files, and the paths of those whose place they take.
    """
    added: list[StagedFile] = []
    removed: list[str] = []
    if not names:
        return added, removed
    gone = pa.array(names, pa.string())
    with lake_errors(f"reading {lake.shown(table)}"):
        stored = opened.to_pyarrow_dataset(filesystem=lake.filesystem(table), schema=table.arrow_schema())
        for fragment in stored.get_fragments():
            is_gone = pc.is_in(fragment.to_table(columns=["src_file"])["src_file"], value_set=gone)
            if pc.any(is_gone).as_py():
                rows = fragment.to_table(schema=table.arrow_schema())
                kept = rows.filter(pc.invert(is_gone))
                added += write_staged(lake, table, kept) if kept.num_rows else []
                removed.append(str(fragment.path))
    return added, removed


def _files_of(lake: Lake, opened: "DeltaTable") -> pa.Table:
    with lake_errors(f"reading {lake.shown(PACKED_EVENTS)}"):
        return pa.table(opened.get_add_actions(flatten=True))

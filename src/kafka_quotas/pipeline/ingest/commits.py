"""The commits of ingests: one of the table `events` decides, and all else follows from it.

A commit of `events` adds the rows of an ingest together with a row that says what was read (`IngestRecord`), takes out
the rows of files that were read anew, and has Delta's transaction identifier `TRANSACTIONS` with the number of the
ingest. It holds only if nothing else was committed since the table was opened: else it looks at what others have read,
and commits after them, or begins anew.

The other tables are derived: the record names their files, which are added after the commit, or by the next ingest if
this one was killed between. Their own transaction identifiers say how far they are.

Invariant: any Delta reader of `events` sees every line once, at any moment.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRecord:
    """What one ingest did."""

    number: int
    """Number of the ingest, from 1."""
    at_ms: int
    files: tuple[ReadFile, ...]
    replaced: tuple[str, ...] = ()
    """Names of files in rows of earlier ingests, whose place its rows take."""
    staged: Mapping[str, Sequence[StagedFile]] = field(default_factory=dict)
    """Its files of derived tables, by table."""

    def text(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> "IngestRecord":
        """Return the record of a JSON text."""
        about = json.loads(text)
        return cls(
            number=about["number"],
            at_ms=about["at_ms"],
            files=tuple(ReadFile(**each) for each in about["files"]),
            replaced=tuple(about["replaced"]),
            staged={name: [StagedFile(*each) for each in files] for name, files in about["staged"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What ingests have read into a folder so far."""

    number: int
    """Number of the latest ingest, 0 for none."""
    records: tuple[IngestRecord, ...]

    @classmethod
    def of(cls, lake: Lake) -> "FolderState":
        """Read what is known.

        Raises:
            UsageError: No ingest made the folder, or one of an earlier version.
            KafkaQuotasError: The table can't be read.
        """
        opened = lake.table(PACKED_EVENTS)
        with lake_errors(f"reading {lake.shown(PACKED_EVENTS)}"):
            files = pa.table(opened.get_add_actions(flatten=True))
            own = files.filter(pc.is_null(files[f"partition.{PARTITION}"])) if files.num_rows else files
            paths = own["path"].to_pylist() if own.num_rows else []
            texts = [text for path in paths for text in _texts(lake, path)]
        records = sorted(map(IngestRecord.of, texts), key=lambda each: each.number)
        return cls(number=records[-1].number if records else 0, records=tuple(records))

    def known_files(self) -> KnownFiles:
        """Return the files that were read."""
        return KnownFiles(file for record in self.records for file in record.files)


def commit(lake: Lake, record: IngestRecord, events: Sequence[StagedFile], before: FolderState) -> int | None:
    """Commit an ingest after all that came since `before`, and return Delta's version of `events`.

    Returns:
        None if another ingest read one of its files meanwhile.

    Raises:
        KafkaQuotasError: The commit failed.
    """
    own, state = {file.head_sha256 for file in record.files}, before
    while True:
        opened = lake.table(PACKED_EVENTS)
        if (opened.transaction_version(TRANSACTIONS) or 0) > state.number:
            state = FolderState.of(lake)
            later = [file for each in state.records if each.number > before.number for file in each.files]
            if own.intersection(file.head_sha256 for file in later):
                remove_staged(lake, PACKED_EVENTS, events)
                return None
            continue
        numbered = replace(record, number=state.number + 1)
        added, removed = without_files(lake, PACKED_EVENTS, opened, record.replaced)
        added += write_staged(lake, PACKED_EVENTS, record_rows(_SOURCES, numbered.text(), at_ms=record.at_ms))
        with suppress(ConflictError):
            version = lake.commit(PACKED_EVENTS, opened, [*events, *added], removed, number=numbered.number)
            # With what came meanwhile: the other tables take ingests in their order only, and pass over no other.
            derive(lake, [*(each for each in state.records if each.number > before.number), numbered])
            return version


def derive(lake: Lake, records: Iterable[IngestRecord]) -> None:
    """Add to the other tables what ingests have read for them and is not there yet.

    Raises:
        KafkaQuotasError: A table can't be read or written.
    """
    known = list(records)
    for table in DERIVED_TABLES:
        own = [each for each in known if each.replaced or each.staged.get(table.name)]
        while own:
            opened = lake.table(table)
            done = opened.transaction_version(TRANSACTIONS) or 0
            own = [each for each in own if each.number > done]
            for record in own[:1]:
                added, removed = without_files(lake, table, opened, record.replaced)
                staged = [*record.staged.get(table.name, ()), *added]
                with suppress(ConflictError):
                    lake.commit(table, opened, staged, removed, number=record.number)


def merge_small_files(lake: Lake) -> None:
    """Write the small files of a day as one where there are many, the rows of a client and hour as one.

    Another commit that comes first prevents it until the next ingest.

    Raises:
        KafkaQuotasError: A file can't be read or written.
    """
    opened = lake.table(PACKED_EVENTS)
    with lake_errors(f"reading {lake.shown(PACKED_EVENTS)}"):
        files = pa.table(opened.get_add_actions(flatten=True))
        small = files.filter(pc.less(files["size_bytes"], _SMALL_BYTES)) if files.num_rows else files
        if small.num_rows < _MANY_FILES:
            return
        days = small[f"partition.{PARTITION}"].to_pylist()
        many = {day for day, count in Counter(days).items() if count >= _MANY_FILES}
        removed = {path: day for path, day in zip(small["path"].to_pylist(), days, strict=True) if day in many}
    added: list[StagedFile] = []
    for day in many:
        own = (StagedFile(path, 0, None, 0, "") for path, of_day in removed.items() if of_day == day)
        columns = [name for name in PACKED_EVENTS.column_names if name != PARTITION]
        rows = pa.concat_tables(read_staged(lake, PACKED_EVENTS, each, columns) for each in own)
        if day is None:
            whole = rows.append_column(PARTITION, pa.nulls(rows.num_rows, pa.date32())).select(
                PACKED_EVENTS.column_names
            )
        else:
            whole = pa.Table.from_batches([pack(unpack(rows, EVENTS.column_names))])
        added += write_staged(lake, PACKED_EVENTS, whole)
    with suppress(ConflictError):
        lake.commit(PACKED_EVENTS, opened, added, removed)


def without_files(
    lake: Lake, table: TableSchema, opened: "DeltaTable", names: Sequence[str]
) -> tuple[list[StagedFile], list[str]]:
    """Write the files of a table that have rows of some sources again, without these.

    Returns:
        The new files, and the paths of those whose place they take.

    Raises:
        KafkaQuotasError: A file can't be read or written.
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


def _texts(lake: Lake, path: str) -> Iterator[Any]:
    file = StagedFile(path, 0, None, 0, "")
    yield from (each for each in read_staged(lake, PACKED_EVENTS, file, [_SOURCES])[_SOURCES].to_pylist() if each)

"""Changes of a data folder's tables: rows are written first, and count once the table `ingests` has the change.

Invariant: a change is in `ingests` once and whole, or not at all. Its number is Delta's transaction version there, so
that of two changes at once one fails and looks again at what is new.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.ingest.ingested_tables import clients_of
from kafka_quotas.pipeline.ingest.plan import ReadFile
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import EventTable
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import DATA_TABLES, ConflictError, Lake
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, CLIENTS, EVENTS, INGESTED_TABLES, INGESTS, TableSchema
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

_RANDOM_BITS: Final = 20


def ingest_id(at_ms: int, random: int) -> int:
    """Return the number of an ingest that begins at a time, made different from others by a random number."""
    return (at_ms << _RANDOM_BITS) | (random % (1 << _RANDOM_BITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change whose rows are written."""

    ingest: int
    operation: str
    at_ms: int
    files: Sequence[ReadFile]
    events: int = 0

    def commit(self, before: FolderSnapshot) -> FolderSnapshot:
        """Add the change after another one and return the folder with it."""
        lake = before.lake
        versions = {f"{table.name}_version": lake.table(table).version() for table in DATA_TABLES}
        same = {
            "ingest": self.ingest,
            "sequence": before.number + 1,
            "at_ms": self.at_ms,
            "operation": self.operation,
            "events": self.events,
            **versions,
        }
        rows = [{**asdict(file), **same} for file in self.files]
        table = pa.Table.from_pylist(rows, schema=INGESTS.arrow_schema())
        lake.append(INGESTS, table, number=before.number + 1)
        return FolderSnapshot(lake=lake, changes=pa.concat_tables([before.changes, table]))

    def commit_unless_read(self, before: FolderSnapshot) -> FolderSnapshot | None:
        """Commit after all changes that came meanwhile, None if one of them read one of the files."""
        own = {file.head_sha256 for file in self.files}
        while True:
            try:
                return self.commit(before)
            except ConflictError:
                newer = FolderSnapshot.of(before.lake)
                rows = newer.changes.filter(pc.greater(newer.changes["sequence"], before.number))
                if own.intersection(rows["head_sha256"].to_pylist()):
                    return None
                before = newer


def require_stored(lake: Lake, ingest: int, expected: dict[TableSchema, int]) -> None:
    """Compare the rows of an ingest in the tables with those that were parsed.

    Raises:
        KafkaQuotasError: Rows are missing, or there are more.
    """
    for table, count in expected.items():
        files = pa.table(lake.table(table).get_add_actions(flatten=True))
        own = files.filter(pc.equal(files["min.ingest"], ingest)) if files.num_rows else files
        found = pc.sum(own["num_records"]).as_py() or 0 if own.num_rows else 0
        if found != count:
            raise KafkaQuotasError(
                f"{count:,} rows of {table.name} were read, but {found:,} are in {lake.shown(table)}",
                hint="nothing was changed; do all workers write to the same place?",
            )


def remove_rows(before: FolderSnapshot, names: Iterable[str], *, ingest: int) -> None:
    """Delete the rows of files that another ingest replaces, and count the clients of what is left.

    Args:
        before: The folder without the ingest.
        names: Names of the files in `src_file`.
        ingest: The ingest whose rows take the place of these.
    """
    gone, lake = sorted(names), before.lake
    texts = ", ".join("'" + name.replace("'", "''") + "'" for name in gone)
    affected: set[int] = set()
    added, removed = [], []
    for file in before.dataset(EVENTS).get_fragments():
        rows = file.to_table(schema=EVENTS.arrow_schema())
        is_gone = pc.is_in(rows["src_file"], value_set=pa.array(gone))
        if not pc.any(is_gone).as_py():
            continue
        affected.update(pc.unique(rows["ingest"]).to_pylist())
        kept = rows.filter(pc.invert(is_gone))
        added += write_events(lake, sorted_by_client(kept)) if kept.num_rows else []
        removed.append(str(file.path))
    lake.commit_files(EVENTS, added, removed=removed)
    for table in INGESTED_TABLES:
        if table is not EVENTS:
            lake.delete(table, f"src_file in ({texts}) and ingest <> {ingest}")
    if affected:
        _count_clients(before, affected)


def _count_clients(before: FolderSnapshot, ingests: set[int]) -> None:
    """Count the clients of some ingests again, from the events that are left of them."""
    events = before.lake.table(EVENTS).to_pyarrow_dataset(
        filesystem=before.lake.filesystem(EVENTS), schema=EVENTS.arrow_schema()
    )
    columns = [*CHARGE_COLUMNS, "client", "ingest"]
    counted = [CLIENTS.arrow_schema().empty_table()]
    for own in EventTable(before).ranges(shift=0, workers=1):
        within = (ds.field("client") >= own.first) & (ds.field("client") <= own.last)
        for ingest in sorted(ingests):
            rows = events.to_table(columns=columns, filter=within & (ds.field("ingest") == ingest))
            counted.append(clients_of(sorted_by_client(rows)))
    before.lake.delete(CLIENTS, f"ingest in ({', '.join(map(str, sorted(ingests)))})")
    before.lake.append(CLIENTS, pa.concat_tables(counted))

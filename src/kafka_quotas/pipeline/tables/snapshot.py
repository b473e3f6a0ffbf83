"""A data folder at one point of its history: the changes so far, and the tables as they belong to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url, lake_errors
from kafka_quotas.pipeline.tables.schemas import INGESTS, TableSchema

if TYPE_CHECKING:  # executors load this module without it
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS_SINCE: Final = 2
"""The first version of the parser with today's `client_number`."""
_BATCH_ROWS: Final = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSnapshot:
    """The changes of a data folder up to one of them."""

    lake: Lake
    changes: pa.Table
    """Rows of the table `ingests`, by number of the change."""
    session: "SparkSession | None" = field(default=None, compare=False)
    """The session by which rows of other tables are read, None for delta-rs."""

    @classmethod
    def of(cls, lake: Lake, number: int | None = None) -> "FolderSnapshot":
        """Read the changes up to a number, None for all.

        Raises:
            UsageError: No ingest made the folder, or one of an earlier version, or the number is none of a change.
            KafkaQuotasError: The table can't be read.
        """
        opened = lake.table(INGESTS)
        with lake_errors(f"reading {lake.shown(INGESTS)}"):
            changes = opened.to_pyarrow_table().select(INGESTS.column_names).sort_by("sequence")
        if (pc.min(changes["parser"]).as_py() or _NUMBERS_SINCE) < _NUMBERS_SINCE:
            raise lake.earlier_version()
        found = cls(lake=lake, changes=changes)
        return found if number is None else found.until(number)

    def until(self, number: int) -> "FolderSnapshot":
        """Return the folder as it was after a change.

        Raises:
            UsageError: There is no such change.
        """
        if not 1 <= number <= self.number:
            known = f"there are 1 to {self.number}" if self.number else "there is none yet"
            raise UsageError(f"{self.lake.shown()} has no change {number}: {known}", hint="the table ingests has them")
        return replace(self, changes=self.changes.filter(pc.less_equal(self.changes["sequence"], number)))

    @property
    def number(self) -> int:
        """The number of the latest change, 0 for none."""
        return int(pc.max(self.changes["sequence"]).as_py() or 0)

    @property
    def ingests(self) -> list[int]:
        """The ingests whose rows count."""
        return sorted(set(self.changes["ingest"].to_pylist()))

    def version(self, table: TableSchema) -> int:
        """Return the version of a table that belongs to the latest change, with its files as merged by now."""
        return self.lake.rearranged(table, int(pc.max(self.changes[f"{table.name}_version"]).as_py() or 0))

    def delta(self, table: TableSchema) -> "DeltaTable":
        """Open a table as it was after the latest change."""
        return self.lake.table(table, self.version(table))

    def dataset(self, table: TableSchema, *, dictionaries: Sequence[str] = ()) -> ds.Dataset:
        """Return the rows of a table, files by day, ingest and client.

        `dictionaries` are columns of text to be read as dictionaries.

        Raises:
            KafkaQuotasError: The table can't be read.
        """
        opened = self.delta(table)
        with lake_errors(f"reading {self.lake.shown(table)}"):
            files = opened.to_pyarrow_dataset(filesystem=self.lake.filesystem(table), schema=table.arrow_schema())
            by_path = sorted(files.get_fragments(), key=lambda fragment: str(fragment.path))
            options = ds.ParquetReadOptions(dictionary_columns=list(dictionaries))
            form = ds.ParquetFileFormat(read_options=options, pre_buffer=True)
            parts = [
                form.make_fragment(
                    each.path, filesystem=each.filesystem, partition_expression=each.partition_expression
                )
                for each in by_path
            ]
            schema = _with_dictionaries(table.arrow_schema(), dictionaries)
            found = ds.FileSystemDataset(parts, schema, form, filesystem=self.lake.filesystem(table))
        needed = self.needed(table)
        return found if needed is None else found.filter(ds.field("ingest").isin(pa.array(needed, pa.int64())))

    def rows_on_spark(self, session: "SparkSession", table: TableSchema) -> "DataFrame":
        """Return the rows of a table, which Spark reads, with all its columns."""
        reader = session.read.format("delta").option("versionAsOf", self.version(table))
        rows, needed = reader.load(hadoop_url(self.lake.place(table))), self.needed(table)
        own = rows if needed is None else rows.where(rows["ingest"].isin(needed))
        return own.select(*table.column_names)

    def read(self, table: TableSchema, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a small table.

        Raises:
            KafkaQuotasError: The table can't be read.
        """
        if self.session is not None:
            found, names = self.rows_on_spark(self.session, table), columns or table.column_names
            return found.select(*names).toArrow().cast(pa.schema([table.arrow_schema().field(name) for name in names]))
        rows = self.dataset(table)
        with lake_errors(f"reading {self.lake.shown(table)}"):
            return rows.to_table(columns=list(columns or table.column_names))

    def batches(self, table: TableSchema, columns: Sequence[str], *, ingest: int) -> Iterator[pa.RecordBatch]:
        """Yield columns of the rows of one ingest, some at a time.

        Raises:
            KafkaQuotasError: The table can't be read.
        """
        with lake_errors(f"reading {self.lake.shown(table)}"):
            only = ds.field("ingest") == ingest
            yield from self.dataset(table).to_batches(columns=list(columns), filter=only, batch_size=_BATCH_ROWS)

    def rows_stored(self, table: TableSchema) -> int:
        """Return how many rows Delta counts in the files of a table, all ingests' included."""
        return int(pc.sum(self.files(table)["num_records"]).as_py() or 0)

    def files(self, table: TableSchema) -> pa.Table:
        """Return the files of a table with what Delta knows of them.

        `path` is relative to the table, `num_records` the number of rows; `min.NAME` and `max.NAME` are bounds of
        columns, which need not be there.
        """
        return pa.table(self.delta(table).get_add_actions(flatten=True))

    def needed(self, table: TableSchema) -> list[int] | None:
        """Return the ingests whose rows of a table count, None if all its rows do."""
        files, known = self.files(table), self.ingests
        if files.num_rows and {"min.ingest", "max.ingest"} <= set(files.column_names):
            lowest, highest = files["min.ingest"], files["max.ingest"]
            is_whole = pc.and_(pc.equal(lowest, highest), pc.is_in(lowest, value_set=pa.array(known, pa.int64())))
            if pc.all(pc.fill_null(is_whole, False)).as_py():  # noqa: FBT003 - Arrow's own signature
                return None
        return known if files.num_rows else None


def _with_dictionaries(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([field.with_type(kind) if field.name in names else field for field in schema])

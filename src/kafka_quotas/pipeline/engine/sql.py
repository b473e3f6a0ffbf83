"""Rows that jobs make and later jobs read by SQL: by DuckDB on this machine, by Spark elsewhere.

A query is written once, for both. What differs between the dialects is in this file. `define`, `add` and a job's run
return the name by which queries find their rows. This process gets the results of queries alone.

Both order text by its bytes.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.tables.lake import PARTITION, ConflictError, Lake, create_table, hint_of, lake_errors
from kafka_quotas.pipeline.tables.schemas import ColumnType, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafka_quotas.pipeline.tables.staged_files import StagedFile

_WRITTEN_ROWS: Final = 1 << 20
"""Rows of a result that this process writes together."""


class Dialect(NamedTuple):
    """SQL that differs between engines, with the column in place of `{}`."""

    inlined: str
    """A row per struct of a list, with the fields as columns."""
    elements: str
    """A row per element of a list."""
    instant: str
    """A time from ms since 1970."""
    day: str
    """A day in UTC from ms since 1970, whatever the session's time zone."""
    ms: str
    """ms since 1970 from a time."""


@contextmanager
def duck_errors(doing: str) -> Iterator[None]:
    """Convert errors of DuckDB, and of the files that it reads, to a `KafkaQuotasError` of one line."""
    import duckdb  # noqa: PLC0415 - only jobs on this machine need it

    try:
        with lake_errors(doing):
            yield
    except duckdb.Error as error:
        why, _, _ = str(error).partition("\n")
        raise KafkaQuotasError(f"{doing} failed: {why}", hint=hint_of(why)) from error


class DuckTables:
    """Rows in this process by name, in files where they are many, and what is asked of them."""

    dialect: Final = Dialect(
        inlined="unnest({}, recursive := true)",
        elements="unnest({})",
        instant="epoch_ms({})",  # without a zone, which Arrow takes as UTC
        day="CAST(epoch_ms({}) AS DATE)",
        ms="epoch_ms({})",
    )

    def __init__(self) -> None:
        require_libraries("duckdb")
        import duckdb  # noqa: PLC0415 - only jobs on this machine need it

        self._numbers = count(1)
        self._connection = duckdb.connect(config={"temp_directory": f"{tempfile.gettempdir()}/kafka-quotas-duckdb"})

    def add(self, name: str, rows: Any) -> str:
        """Register an Arrow table or dataset, which DuckDB reads in place."""
        found = f"{name}_{next(self._numbers)}"
        self._connection.register(found, rows)
        return found

    def define(self, name: str, sql: str, *, keep: bool = False) -> str:
        """Name the rows of a query, which are computed once if they are to be kept."""
        found = f"{name}_{next(self._numbers)}"
        self._connection.execute(f"CREATE TEMP {'TABLE' if keep else 'VIEW'} {found} AS {sql}")
        return found

    def query(self, sql: str, *, is_long: bool = False) -> "pa.Table":
        """Return the rows of a query, with the errors of the files that a dataset reads."""
        del is_long
        import duckdb  # noqa: PLC0415 - as above
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        try:
            found = self._connection.sql(sql).to_arrow_table()
        except duckdb.InvalidInputException as error:
            cause = str(error).partition("' failed: ")[2]
            if not cause:
                raise
            raise (FileNotFoundError if "[errno 2]" in cause else OSError)(cause) from error
        # sums of whole numbers are wider than a column
        narrow = [(each.name, pa.int64() if pa.types.is_decimal(each.type) else each.type) for each in found.schema]
        return found.cast(pa.schema(narrow))

    def stage(self, name: str, lake: Lake, table: TableSchema) -> "list[StagedFile]":
        """Write named rows of a table to files, for a commit, some at a time."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        from kafka_quotas.pipeline.tables.staged_files import write_staged  # noqa: PLC0415 - as above

        schema = table.arrow_schema()
        rows = self._connection.sql(f"SELECT {', '.join(schema.names)} FROM {name}").to_arrow_reader(_WRITTEN_ROWS)
        batches = (pa.Table.from_batches([batch]).cast(schema) for batch in rows)
        return [file for batch in batches for file in write_staged(lake, table, batch)]

    def forget(self) -> None:
        """Close the database."""
        self._connection.close()


class SparkTables:
    """Rows with the executors of a session, on their disks if they are kept."""

    dialect: Final = Dialect(
        inlined="inline({})",
        elements="explode({})",
        instant="timestamp_millis({})",
        day="date_from_unix_date(CAST(floor({} / 86400000) AS INT))",
        ms="unix_millis({})",
    )

    def __init__(self, session: "SparkSession") -> None:
        self._session = session
        self._numbers = count(1)
        self._run = uuid4().hex[:8]
        self._kept: list[DataFrame] = []

    def add(self, name: str, rows: "pa.Table") -> str:
        """Send the rows to executors."""
        from kafka_quotas.pipeline.tables.arrow import arrow_frame  # noqa: PLC0415 - loads Arrow

        return self.name(name, arrow_frame(self._session, rows))

    def name(self, name: str, frame: "DataFrame", *, keep: bool = False) -> str:
        """Name the rows of a frame."""
        from pyspark import StorageLevel  # noqa: PLC0415 - only Spark's engine has it

        found = f"{name}_{self._run}_{next(self._numbers)}"
        if keep:
            frame = frame.persist(StorageLevel.DISK_ONLY)
            self._kept.append(frame)
        frame.createOrReplaceTempView(found)
        return found

    def define(self, name: str, sql: str, *, keep: bool = False) -> str:
        """Name the rows of a query, which executors keep if that is asked."""
        return self.name(name, self._session.sql(sql), keep=keep)

    def query(self, sql: str, *, is_long: bool = False) -> "pa.Table":
        """Collect the rows, many of them a partition at a time: together they would be too large a result."""
        found = self._session.sql(sql)
        if not is_long:
            return found.toArrow()
        import pyarrow as pa  # noqa: PLC0415 - as above
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only Spark's engine has it

        from kafka_quotas.pipeline.engine.spark_tasks import CONTENT, as_content, in_tasks  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.tables.arrow import unpacked  # noqa: PLC0415 - as above

        rows = in_tasks(found, as_content, f"{CONTENT} binary").toLocalIterator()
        schema = to_arrow_schema(found.schema)
        parts = [unpacked(bytes(row[CONTENT])).cast(schema) for row in rows]
        return pa.concat_tables([schema.empty_table(), *parts])

    def stage(self, name: str, lake: Lake, table: TableSchema) -> "list[StagedFile]":
        """Let executors write the rows."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        from kafka_quotas.pipeline.engine.spark_tasks import pickled_in_tasks, unpickled  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.tables.staged_files import require_written, write_staged  # noqa: PLC0415 - as above

        def write(batches: "Iterable[pa.RecordBatch]") -> "Iterator[list[StagedFile]]":
            if own := list(batches):
                yield write_staged(lake, table, pa.Table.from_batches(own).cast(table.arrow_schema()))

        rows = self._session.table(name).select(*table.column_names)
        return require_written(lake, table, chain.from_iterable(unpickled(pickled_in_tasks(rows, write))))

    def forget(self) -> None:
        """Let executors delete what they keep."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()


SqlTables = DuckTables | SparkTables


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRun:
    """A run whose rows are written."""

    quotas: str
    """Name of the quotas in force, or proposed."""
    day: date
    """The day of rows that are about all that was recorded: that of the last event."""
    run_id: str = field(default_factory=lambda: uuid4().hex)

    @classmethod
    def of(cls, quotas: str, last_ms: int | None) -> "ResultRun":
        """Return a run over events up to a time in ms since 1970, None without events."""
        return cls(quotas=quotas, day=datetime.fromtimestamp((last_ms or 0) / 1000, UTC).date())


def write_result(
    tables: SqlTables, rows: str, place: str, table: TableSchema, run: ResultRun, *, day_of: str | None = None
) -> None:
    """Write rows of a job to a result table below a path or URL, in place of the days that they have.

    `rows` is their name in `tables`, `day_of` the column with each row's time in ms, None for the day of the run.

    Raises:
        UsageError: The table is of an earlier version.
        KafkaQuotasError: The table can't be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above
    from deltalake import DeltaTable  # noqa: PLC0415 - executors load this module without it

    of_run = tables.add("run", pa.table({"day_of_run": [run.day], "quotas": [run.quotas], "run_id": [run.run_id]}))
    known = result_columns(tables.dialect, table, day_of=day_of)
    known = {PARTITION: f"day_of_run AS {PARTITION}"} | known
    columns = ", ".join(known.get(name, name) for name in table.column_names)
    rows = tables.define(table.name, f"SELECT {columns} FROM {rows} CROSS JOIN {of_run}")
    lake = Lake.of(place)
    with lake_errors(f"writing the table {table.name} to {place}"):
        create_table(own := lake.place(table), table)
        if {each.name for each in DeltaTable(own).schema().fields} != set(table.column_names):
            raise UsageError(f"{place}/{table.name} was written by an earlier version", hint="write to another folder")
        staged = tables.stage(rows, lake, table)
        while staged:  # of several runs at once the last one's rows stay
            opened = DeltaTable(own)
            files, days = pa.table(opened.get_add_actions(flatten=True)), {each.day for each in staged}
            removed = [each["path"] for each in files.to_pylist() if str(each[f"partition.{PARTITION}"]) in days]
            with suppress(ConflictError):
                lake.commit(table, opened, staged, removed, is_change=True)
                return


def result_columns(dialect: Dialect, table: TableSchema, *, day_of: str | None = None) -> dict[str, str]:
    """Return the SQL for the columns of a table from rows between jobs, but for those about a run.

    `day_of` is the column with each row's time in ms, None if the day is that of the run.
    """
    found = {} if day_of is None else {PARTITION: f"{dialect.day.format(day_of)} AS {PARTITION}"}
    for column in table.columns[1 : table.column_names.index("quotas")]:
        found[column.name] = column.name
        if column.name in ("user", "client_id"):
            found[column.name] = f"nullif({column.name}, '') AS {column.name}"
        elif column.type is ColumnType.TIMESTAMP:
            in_ms = f"{column.name.removesuffix('_at')}_ms"
            found[column.name] = f"{dialect.instant.format(in_ms)} AS {column.name}"
    return found

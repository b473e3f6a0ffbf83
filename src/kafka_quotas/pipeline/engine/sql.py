"""Rows that jobs make and later jobs read by SQL: by DuckDB on this machine, by Spark elsewhere.

A query is written once, for both. What differs between the dialects is in this file. `define`, `add` and a job's run
return the name by which queries find their rows. This process gets the results of queries alone.

Both order text by its bytes.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.tables.lake import PARTITION, create_table, hadoop_url, lake_errors, lake_url
from kafka_quotas.pipeline.tables.schemas import ColumnType, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SqlTables(Protocol):
    """Rows by name, and what is asked of them."""

    def add(self, name: str, rows: "pa.Table") -> str:
        """Name rows of this process."""
        ...

    def define(self, name: str, sql: str, *, keep: bool = False) -> str:
        """Name the rows of a query, which are computed once if they are to be kept."""
        ...

    def query(self, sql: str, *, is_long: bool = False) -> "pa.Table":
        """Return the rows of a query, which may be many of them."""
        ...

    def inlined(self, column: str) -> str:
        """Return the SQL for a row per struct of a list, with the fields as columns."""
        ...

    def instant(self, column: str) -> str:
        """Return the SQL for a time from ms since 1970."""
        ...

    def day(self, column: str) -> str:
        """Return the SQL for a day in UTC from ms since 1970."""
        ...

    def write(self, name: str, place: str, table: TableSchema) -> None:
        """Write named rows to a Delta table, in place of the days that they have."""
        ...


class DuckTables:
    """Rows in this process, and in files where they are many."""

    def __init__(self) -> None:
        require_libraries("duckdb")
        import duckdb  # noqa: PLC0415 - only jobs on this machine need it

        self._connection = duckdb.connect(config={"temp_directory": f"{tempfile.gettempdir()}/kafka-quotas-duckdb"})
        self._names = 0

    def add(self, name: str, rows: Any) -> str:
        """Register an Arrow table or dataset, which DuckDB reads in place."""
        found = self._name(name)
        self._connection.register(found, rows)
        return found

    def define(self, name: str, sql: str, *, keep: bool = False) -> str:
        """Create a view, or a table to be kept."""
        found = self._name(name)
        self._connection.execute(f"CREATE TEMP {'TABLE' if keep else 'VIEW'} {found} AS {sql}")
        return found

    def query(self, sql: str, *, is_long: bool = False) -> "pa.Table":
        """Run the query."""
        del is_long
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        found = self._connection.sql(sql).to_arrow_table()
        # sums of whole numbers are wider than a column
        narrow = [(each.name, pa.int64() if pa.types.is_decimal(each.type) else each.type) for each in found.schema]
        return found.cast(pa.schema(narrow))

    def inlined(self, column: str) -> str:
        """Unnest the list and its structs."""
        return f"unnest({column}, recursive := true)"

    def instant(self, column: str) -> str:
        """Make a time without a zone, which Arrow takes as UTC."""
        return f"epoch_ms({column})"

    def day(self, column: str) -> str:
        """Cut such a time."""
        return f"CAST(epoch_ms({column}) AS DATE)"

    def write(self, name: str, place: str, table: TableSchema) -> None:
        """Write the rows by delta-rs."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it
        from deltalake import write_deltalake  # noqa: PLC0415 - executors load this module without it

        schema = table.arrow_schema()
        rows = self.query(f"SELECT {', '.join(schema.names)} FROM {name}")
        rows = pa.table([rows[each.name].cast(each.type) for each in schema], schema=schema)
        if days := _create(self, name, place, table):
            write_deltalake(_place(place, table), rows, mode="overwrite", predicate=_of_days(days))

    def _name(self, name: str) -> str:
        self._names += 1
        return f"{name}_{self._names}"


class SparkTables:
    """Rows with the executors of a session, on their disks if they are kept."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session
        self._run = uuid4().hex[:8]
        self._names = 0
        self._kept: list[DataFrame] = []

    def add(self, name: str, rows: "pa.Table") -> str:
        """Send the rows to executors."""
        from kafka_quotas.pipeline.tables.arrow import arrow_frame  # noqa: PLC0415 - loads Arrow

        return self.name(name, arrow_frame(self._session, rows))

    def name(self, name: str, frame: "DataFrame", *, keep: bool = False) -> str:
        """Name the rows of a frame."""
        from pyspark import StorageLevel  # noqa: PLC0415 - only Spark's engine has it

        self._names += 1
        found = f"{name}_{self._run}_{self._names}"
        if keep:
            frame = frame.persist(StorageLevel.DISK_ONLY)
            self._kept.append(frame)
        frame.createOrReplaceTempView(found)
        return found

    def define(self, name: str, sql: str, *, keep: bool = False) -> str:
        """Name the frame of the query."""
        return self.name(name, self._session.sql(sql), keep=keep)

    def query(self, sql: str, *, is_long: bool = False) -> "pa.Table":
        """Collect the rows, many of them a partition at a time: together they would be too large a result."""
        found = self._session.sql(sql)
        if not is_long:
            return found.toArrow()
        import pyarrow as pa  # noqa: PLC0415 - as above
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only Spark's engine has it

        return pa.Table.from_pylist([row.asDict() for row in found.toLocalIterator()], to_arrow_schema(found.schema))

    def frame(self, name: str) -> "DataFrame":
        """Return named rows."""
        return self._session.table(name)

    def inlined(self, column: str) -> str:
        """Inline the list."""
        return f"inline({column})"

    def instant(self, column: str) -> str:
        """Make a time."""
        return f"timestamp_millis({column})"

    def day(self, column: str) -> str:
        """Count days, whatever the session's time zone."""
        return f"date_from_unix_date(CAST(floor({column} / 86400000) AS INT))"

    def write(self, name: str, place: str, table: TableSchema) -> None:
        """Let executors write the rows."""
        if days := _create(self, name, place, table):
            rows = self._session.table(name).select(*table.column_names)
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", _of_days(days))
            writer.save(hadoop_url(_place(place, table)))

    def forget(self) -> None:
        """Let executors delete what they keep."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()


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

    Args:
        tables: Where the rows are.
        rows: Their name.
        place: The folder of the tables.
        table: The table.
        run: The run.
        day_of: The column with each row's time in ms, None for the day of the run.

    Raises:
        UsageError: The table is of an earlier version.
        KafkaQuotasError: The table can't be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    own = {"day_of_run": pa.array([run.day]), "quotas": pa.array([run.quotas]), "run_id": pa.array([run.run_id])}
    of_run = tables.add("run", pa.table(own))
    known = result_columns(tables, table, day_of=day_of)
    known = {PARTITION: f"day_of_run AS {PARTITION}"} | known
    columns = ", ".join(known.get(name, name) for name in table.column_names)
    with lake_errors(f"writing the table {table.name} to {place}"):
        tables.write(tables.define(table.name, f"SELECT {columns} FROM {rows} CROSS JOIN {of_run}"), place, table)


def result_columns(tables: SqlTables, table: TableSchema, *, day_of: str | None = None) -> dict[str, str]:
    """Return the SQL for the columns of a table from rows between jobs, but for those about a run.

    `day_of` is the column with each row's time in ms, None if the day is that of the run.
    """
    found = {} if day_of is None else {PARTITION: f"{tables.day(day_of)} AS {PARTITION}"}
    for column in table.columns[1 : table.column_names.index("quotas")]:
        found[column.name] = column.name
        if column.name in ("user", "client_id"):
            found[column.name] = f"nullif({column.name}, '') AS {column.name}"
        elif column.type is ColumnType.TIMESTAMP:
            in_ms = f"{column.name.removesuffix('_at')}_ms"
            found[column.name] = f"{tables.instant(in_ms)} AS {column.name}"
    return found


def _place(place: str, table: TableSchema) -> str:
    return f"{lake_url(place)}/{table.name}"


def _create(tables: SqlTables, name: str, place: str, table: TableSchema) -> list[str]:
    """Create a table that is missing, and return the days of the rows to write.

    Raises:
        UsageError: The table is of an earlier version, and has other columns.
    """
    from deltalake import DeltaTable  # noqa: PLC0415 - as above

    with lake_errors(f"creating the table {table.name} in {place}"):
        create_table(_place(place, table), table)
        known = {each.name for each in DeltaTable(_place(place, table)).schema().fields}
    if known != set(table.column_names):
        raise UsageError(f"{place}/{table.name} was written by an earlier version", hint="write to another folder")
    days = tables.query(f"SELECT DISTINCT CAST({PARTITION} AS STRING) AS day FROM {name}")["day"].to_pylist()
    return sorted(days)


def _of_days(days: Sequence[str]) -> str:
    return f"{PARTITION} IN ({', '.join(repr(each) for each in days)})"

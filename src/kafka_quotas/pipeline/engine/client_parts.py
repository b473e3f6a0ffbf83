"""Rows of many clients in parts, where they are: in this process, or with Spark's executors.

Contract: all rows of a user and client-id are in one part, over all brokers and quota types. Functions get a part as an
Arrow table, decide on its columns, and return a small summary or other rows of the same clients. Only summaries come
to the process that asks, however many clients there are.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from kafka_quotas.pipeline.engine.job import Job, Tables

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.spark import LeftTables

Found = TypeVar("Found")
Pick = Callable[[pa.Table], pa.Table]
"""Returns the rows and columns of a table that count, of some of its rows or of all."""


class ClientParts(Protocol):
    """The parts of a table."""

    def of_each(self, function: Callable[[pa.Table], Found]) -> list[Found]:
        """Return what a function makes of each part, in any order: nothing if there are no rows."""
        ...

    def joined(self, others: "ClientParts", join: Callable[[pa.Table, pa.Table], pa.Table]) -> "ClientParts":
        """Return the rows that a function makes of each part and the same clients' rows of another table."""
        ...

    def regrouped(self, function: Pick, by: str) -> "ClientParts":
        """Return the rows that a function makes of each part, in parts by user or by client-id.

        `by` is `user` or `client_id`, of which one part has all rows; those where it is empty are anywhere.
        """
        ...


class LocalParts:
    """A table in memory, which is one part."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def of_each(self, function: Callable[[pa.Table], Found]) -> list[Found]:
        """Call the function once."""
        return [function(self.rows)] if self.rows.num_rows else []

    def joined(self, others: ClientParts, join: Callable[[pa.Table, pa.Table], pa.Table]) -> "LocalParts":
        """Call the function once."""
        assert isinstance(others, LocalParts)
        return LocalParts(join(self.rows, others.rows))

    def regrouped(self, function: Pick, by: str) -> "LocalParts":  # noqa: ARG002 - one part has all rows of anything
        """Call the function once."""
        return LocalParts(function(self.rows))


def client_parts(job: Job, name: str, tasks: Sequence[Tables], left: "LeftTables | None", pick: Pick) -> ClientParts:
    """Return the rows that `pick` leaves of a job's table, by the results of `OpenEvents.run_leaving`."""
    if left is None:
        return LocalParts(pick(pa.concat_tables([job.schemas[name].empty_table(), *(each[name] for each in tasks)])))
    from kafka_quotas.pipeline.engine.spark_parts import SparkParts  # noqa: PLC0415 - loads PySpark

    return SparkParts.of(left, name, pick)

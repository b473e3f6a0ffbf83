"""The job `usage`: what each quota bucket used, by windows and over all that was recorded."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kafka_quotas.pipeline.engine.runner import Events
from kafka_quotas.pipeline.engine.sql import ResultRun, SqlTables, write_result
from kafka_quotas.pipeline.jobs.usage.task import UsagePlan, usage_job
from kafka_quotas.pipeline.tables.results import NAMES, USED
from kafka_quotas.pipeline.tables.schemas import USAGE, USAGE_PROFILE

KEY: Final = ", ".join(NAMES)
"""The names of a bucket, as SQL."""
_IS_LIMITED: Final = "coalesce(quota > 0, false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """What was used: rows by the schema `USED`, and one per window."""

    tables: SqlTables
    buckets: str
    """The name of the rows of buckets in `tables`."""
    windows: str
    """That of their windows."""

    @classmethod
    def of(cls, tables: SqlTables, buckets: str) -> "UsageTables":
        """Return what was used, given rows of the job."""
        windows = tables.define("windows", f"SELECT {KEY}, {tables.inlined('windows')} FROM {buckets}")
        return cls(tables=tables, buckets=buckets, windows=windows)

    def count(self) -> int:
        """Return the number of buckets."""
        return int(self.tables.query(f"SELECT count(*) AS buckets FROM {self.buckets}")["buckets"][0].as_py())

    def clusters(self) -> list[str]:
        """Return the clusters of the buckets, sorted."""
        found: list[str] = self.tables.query(f"SELECT DISTINCT cluster FROM {self.buckets}")["cluster"].to_pylist()
        return sorted(found)

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first buckets: by nearness to their limits, then the largest without one."""
        columns = ", ".join(name for name in USED.names if name != "windows")
        return self.tables.query(
            f"""SELECT {columns} FROM {self.buckets}
            ORDER BY CASE WHEN {_IS_LIMITED} THEN '' ELSE quota_type END,
                CASE WHEN {_IS_LIMITED} THEN p99 / quota ELSE max END DESC NULLS LAST, {KEY}
            {"" if limit is None else f"LIMIT {limit}"}""",
            is_long=limit is None,
        )

    def write(self, out: str, run: ResultRun) -> None:
        """Write the tables `usage` and `usage_profile` below a path or URL, in place of the same days.

        Raises:
            KafkaQuotasError: A table can't be written.
        """
        write_result(self.tables, self.windows, out, USAGE, run, day_of="window_start_ms")
        write_result(self.tables, self.buckets, out, USAGE_PROFILE, run)


def usage(events: Events, plan: UsagePlan) -> UsageTables:
    """Sum up open events, with the errors of `Events.run`."""
    return UsageTables.of(events.tables, events.run(usage_job(plan)))

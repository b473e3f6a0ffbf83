"""The job `replay`: what proposed quotas would have done to each quota bucket."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kafka_quotas.pipeline.engine.runner import Events
from kafka_quotas.pipeline.engine.sql import ResultRun, SqlTables, write_result
from kafka_quotas.pipeline.jobs.replay.task import ReplayPlan, replay_job
from kafka_quotas.pipeline.tables.results import NAMES, REPLAYED
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF

KEY: Final = ", ".join(NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What proposals would have done: rows by the schema `REPLAYED`."""

    tables: SqlTables
    rows: str
    """The name of the rows in `tables`."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows, and of those with a throttle time."""
        found = self.tables.query(f"SELECT count(*) AS n, count_if(throttled_n > 0) AS throttled FROM {self.rows}")
        return int(found["n"][0].as_py()), int(found["throttled"][0].as_py())

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first rows by proposal and model, those throttled longest first."""
        columns = ", ".join(name for name in REPLAYED.names if name not in ("proposal", "spans"))
        return self.tables.query(
            f"""SELECT {columns} FROM {self.rows}
            ORDER BY proposal, model DESC, throttle_ms DESC, {KEY}
            {"" if limit is None else f"LIMIT {limit}"}""",
            is_long=limit is None,
        )

    def write(self, out: str, run: ResultRun, *, has_spans: bool) -> None:
        """Write the table `whatif`, and `throttle_spans` too, below a path or URL, in place of the same days.

        Raises:
            KafkaQuotasError: A table can't be written.
        """
        write_result(self.tables, self.rows, out, WHATIF, run)
        if has_spans:
            spans = f"SELECT scenario, {KEY}, model, {self.tables.inlined('spans')} FROM {self.rows}"
            write_result(self.tables, self.tables.define("spans", spans), out, THROTTLE_SPANS, run, day_of="start_ms")


def replay(events: Events, plan: ReplayPlan) -> Outcomes:
    """Replay open events under every proposal of a plan, with the errors of `Events.run`."""
    return Outcomes(tables=events.tables, rows=events.run(replay_job(plan)))

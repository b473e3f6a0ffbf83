"""`samples.parquet`: every client's seconds and events, for replay and for other programs.

One row is one second of one client (`kind` second), or one event that its quota was charged with (`kind` event). The
columns that `pipeline ingest` knows from its events have the same names, types and units here, and a row of kind event
is such an event. `COLUMNS` is the list, published in `docs/load-test.md`. Needs pyarrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.result.charges import recorded_charges
from kafka_quotas.loadtest.result.prediction import PredictionSource
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult

SAMPLES_FILE = "samples.parquet"
ANONYMOUS = "ANONYMOUS"
"""The user of a client that names none, as brokers call a client without a login."""
_BATCH = 50_000

SECOND, EVENT = "second", "event"
QUOTA_TYPES: Final = {
    Workload.PRODUCE: "produce",
    Workload.CONSUME: "fetch",
    Workload.REQUESTS: "request_rate",
    Workload.MUTATE: "controller_mutation",
    Workload.CONNECT: "connection",
}
"""Quota types by workload, by the names of `core.quotas.quota_manager.QuotaType`, which has none for connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumn:
    """One column of the file."""

    name: str
    type: str
    """The type, by Arrow's name."""
    doc: str
    """A description of its values."""
    nullable: bool = False
    """Whether it may be null."""


COLUMNS: Final = (
    SampleColumn(name="kind", type="string", doc="`second` or `event`"),
    SampleColumn(name="ts_ms", type="int64", doc="when: the start of the second, or the event; ms since 1970 UTC"),
    SampleColumn(name="cluster", type="string", doc="the bootstrap address of the run"),
    SampleColumn(name="run_id", type="string", doc="the run, hexadecimal"),
    SampleColumn(name="broker_id", type="int32", doc="the broker that charged; -1 where unknown, and for seconds"),
    SampleColumn(name="user", type="string", doc="the client's user; ANONYMOUS where it names none"),
    SampleColumn(name="client_id", type="string", doc="the client-id; empty where it sends none"),
    SampleColumn(name="does", type="string", doc="produce, consume, requests, mutate or connect"),
    SampleColumn(
        name="quota_type", type="string", doc="produce, fetch, request_rate, controller_mutation or connection"
    ),
    SampleColumn(name="bytes", type="int64", doc="bytes charged (produce, fetch), else 0; below 0: taken back"),
    SampleColumn(name="mutations", type="int32", doc="partitions charged (controller_mutation), else 0"),
    SampleColumn(name="requests", type="int64", doc="event: 1; second: all responses, 0 where the client can't tell"),
    SampleColumn(name="records", type="int64", doc="records acknowledged or read; of events always 0"),
    SampleColumn(name="throttle_ms", type="int64", doc="throttle time announced; second: the longest; ms"),
    SampleColumn(name="throttle_sum_ms", type="int64", doc="sum of all throttle times announced; ms"),
    SampleColumn(name="throttled", type="int64", doc="how many responses announced a throttle time above 0"),
    SampleColumn(name="failed", type="int64", doc="records or requests given up"),
    SampleColumn(name="dropped", type="int64", doc="due and never sent by the load tester"),
    SampleColumn(name="limit", type="float64", doc="the quota of one broker, per second; null: none", nullable=True),
    SampleColumn(
        name="source",
        type="string",
        doc="where events were seen: responses (exact), daemon (exact) or acknowledgements (batches of them); "
        "empty for seconds",
    ),
)
"""Every column, in order."""
_SOURCES: Final = {
    PredictionSource.RESPONSES: "responses",
    PredictionSource.EVENT_LOG: "daemon",
    PredictionSource.ACKNOWLEDGEMENTS: "acknowledgements",
}
_BYTES = (Workload.PRODUCE, Workload.CONSUME)


def can_write_samples() -> bool:
    """Return whether the library that writes the file is installed."""
    return find_spec("pyarrow") is not None


def write_samples(result: LoadResult, path: Path) -> None:
    """Write the samples of a run to a file.

    Raises:
        OSError: The file can't be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - only who has it gets this file
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([pa.field(each.name, getattr(pa, each.type)(), nullable=each.nullable) for each in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        batch: list[tuple[Any, ...]] = []
        for row in _rows(result):
            batch.append(row)
            if len(batch) >= _BATCH:
                writer.write_table(_table(batch, schema))
                batch = []
        writer.write_table(_table(batch, schema))


def _table(rows: list[tuple[Any, ...]], schema: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - loaded by now

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _rows(result: LoadResult) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as tuples in the order of the columns: each client's seconds, then its events."""
    for entity in result.entities:
        yield from _seconds(result, entity)
        source, events = recorded_charges(entity)
        for charge in events:
            yield _row(
                result,
                entity,
                kind=EVENT,
                t_ms=charge.t_ms,
                broker=charge.broker if source is not PredictionSource.ACKNOWLEDGEMENTS else -1,
                charged=charge.amount,
                requests=1,
                throttle=(charge.throttle_ms, charge.throttle_ms, int(charge.throttle_ms > 0)),
                source=_SOURCES[source],
            )


def _seconds(result: LoadResult, entity: ClientResult) -> Iterator[tuple[Any, ...]]:
    for each in entity.seconds:
        yield _row(
            result,
            entity,
            kind=SECOND,
            t_ms=each.second * 1000,
            broker=-1,
            charged=each.rate * entity.sample_s,
            requests=each.responses,
            records=each.records,
            throttle=(each.throttle_max_ms, each.throttle_sum_ms, each.throttled),
            given_up=(each.failed, each.dropped),
            source="",
        )


def _row(
    result: LoadResult,
    entity: ClientResult,
    *,
    kind: str,
    t_ms: int,
    broker: int,
    charged: float,
    requests: int,
    throttle: tuple[int, int, int],
    source: str,
    records: int = 0,
    given_up: tuple[int, int] = (0, 0),
) -> tuple[Any, ...]:
    quota, does = entity.verdict.quota, entity.workload
    return (
        kind,
        result.started_ms + t_ms,
        result.bootstrap,
        f"{result.run_id:016x}",
        broker,
        entity.name.user or ANONYMOUS,
        entity.name.client_id or "",
        does.value,
        QUOTA_TYPES[does],
        round(charged) if does in _BYTES else 0,
        round(charged) if does is Workload.MUTATE else 0,
        requests,
        records,
        *throttle,
        *given_up,
        None if quota is None else quota / entity.enforcers,
        source,
    )

"""A run's results for other programs: `samples.parquet` with every client's seconds and events, and a JUnit report.

One row of the samples is one second of one client (`kind` second), or one event that its quota was charged with (`kind`
event). The columns that `pipeline ingest` knows from its events have the same names, types and units here, and a row of
kind event is such an event. `COLUMNS` is the list, published in `docs/reference/load-test.md`. Needs pyarrow.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.judgement import Judgement, State
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.prediction import PredictionSource
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, recorded_charges

SAMPLES_FILE = "samples.parquet"
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
    doc: str
    nullable: bool = False


_text, _int, _long, _float = (partial(SampleColumn, type=name) for name in ("string", "int32", "int64", "float64"))
COLUMNS: Final = (
    _text(name="kind", doc="`second` or `event`"),
    _long(name="ts_ms", doc="when: the start of the second, or the event; ms since 1970 UTC"),
    _text(name="cluster", doc="the bootstrap address of the run"),
    _text(name="run_id", doc="the run, hexadecimal"),
    _int(name="broker_id", doc="the broker that charged; -1 where unknown, and for seconds"),
    _text(name="user", doc="the client's user; ANONYMOUS where it names none"),
    _text(name="client_id", doc="the client-id; empty where it sends none"),
    _text(name="does", doc="produce, consume, requests, mutate or connect"),
    _text(name="quota_type", doc="produce, fetch, request_rate, controller_mutation or connection"),
    _long(name="bytes", doc="bytes charged (produce, fetch), else 0; below 0: taken back"),
    _int(name="mutations", doc="partitions charged (controller_mutation), else 0"),
    _long(name="requests", doc="event: 1; second: all responses, 0 where the client can't tell"),
    _long(name="records", doc="records acknowledged or read; of events always 0"),
    _long(name="throttle_ms", doc="throttle time announced; second: the longest; ms"),
    _long(name="throttle_sum_ms", doc="sum of all throttle times announced; ms"),
    _long(name="throttled", doc="how many responses announced a throttle time above 0"),
    _long(name="failed", doc="records or requests given up"),
    _long(name="dropped", doc="due and never sent by the load tester"),
    _float(name="limit", doc="the quota of one broker, per second; null: none", nullable=True),
    _text(
        name="source",
        doc="where events were seen: responses (exact), daemon (exact) or acknowledgements (batches of them); "
        "empty for seconds",
    ),
)
_SOURCES: Final = {
    PredictionSource.RESPONSES: "responses",
    PredictionSource.EVENT_LOG: "daemon",
    PredictionSource.ACKNOWLEDGEMENTS: "acknowledgements",
}


def can_write_samples() -> bool:
    """Return whether the library that writes the file is installed."""
    return find_spec("pyarrow") is not None


def write_samples(result: LoadResult, path: Path) -> None:
    """Write the samples of a run to a file."""
    import pyarrow as pa  # noqa: PLC0415 - only who has it gets this file
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([pa.field(each.name, getattr(pa, each.type)(), nullable=each.nullable) for each in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows = _rows(result)
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def _rows(result: LoadResult) -> Iterator[dict[str, Any]]:
    for entity in result.entities:
        quota = entity.verdict.quota
        client = {
            "cluster": result.bootstrap,
            "run_id": f"{result.run_id:016x}",
            "user": entity.name.user or ANONYMOUS,
            "client_id": entity.name.client_id or "",
            "does": entity.workload.value,
            "quota_type": QUOTA_TYPES[entity.workload],
            "limit": None if quota is None else quota / entity.enforcers,
        }
        for second in entity.seconds:
            same = ("records", "throttle_sum_ms", "throttled", "failed", "dropped")
            yield {
                **client,
                **_charge(entity, second.rate * entity.sample_s),
                **{name: getattr(second, name) for name in same},
                "kind": SECOND,
                "ts_ms": result.started_ms + second.second * 1000,
                "broker_id": -1,
                "requests": second.responses,
                "throttle_ms": second.throttle_max_ms,
                "source": "",
            }
        source, events = recorded_charges(entity)
        for event in events:
            if event.t_ms < 0:  # before the load
                continue
            yield {
                **client,
                **_charge(entity, event.charged),
                "kind": EVENT,
                "ts_ms": result.started_ms + event.t_ms,
                "broker_id": event.broker if source is not PredictionSource.ACKNOWLEDGEMENTS else -1,
                "requests": 1,
                "throttle_ms": event.throttle_ms,
                "throttle_sum_ms": event.throttle_ms,
                "throttled": int(event.throttle_ms > 0),
                **dict.fromkeys(("records", "failed", "dropped"), 0),
                "source": _SOURCES[source],
            }


def _charge(entity: ClientResult, amount: float) -> dict[str, int]:
    return {
        "bytes": round(amount) if entity.workload.moves_records else 0,
        "mutations": round(amount) if entity.workload is Workload.MUTATE else 0,
    }


_OUTCOMES: Final = {State.NOT_MET: "failure", State.VOID: "error", State.UNCHECKED: "skipped"}
_COUNTS: Final = {"failures": State.NOT_MET, "errors": State.VOID, "skipped": State.UNCHECKED}
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(result: LoadResult) -> str:
    """Return the document of one run."""
    states = [judgement.state for judgement in result.judgements]
    counts = {name: str(states.count(state)) for name, state in _COUNTS.items()}
    title = _clean(f"load-test {result.title}")
    suites = ET.Element("testsuites", {"name": "kafka-quotas load-test", "tests": str(len(states)), **counts})
    suite = ET.SubElement(
        suites,
        "testsuite",
        {
            "name": title,
            "tests": str(len(states)),
            **counts,
            "time": f"{result.elapsed_s:.3f}",
            "timestamp": format_instant(result.started_ms).removesuffix("Z"),
        },
    )
    for judgement in result.judgements:
        _case(suite, judgement, title)
    if result.warnings:
        ET.SubElement(suite, "system-err").text = _clean("\n".join(result.warnings))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _case(suite: ET.Element, judgement: Judgement, title: str) -> None:
    evidence = _clean(judgement.evidence)
    subject = judgement.entity or ("run" if judgement.aspect.value != "expectation" else evidence.partition(": ")[0])
    case = ET.SubElement(
        suite, "testcase", {"classname": title, "name": f"{_clean(subject)}: {judgement.aspect.label}", "time": "0"}
    )
    outcome = _OUTCOMES.get(judgement.state)
    if outcome is None:
        ET.SubElement(case, "system-out").text = evidence
        return
    details = {"message": evidence} if outcome == "skipped" else {"message": evidence, "type": judgement.state.value}
    ET.SubElement(case, outcome, details)


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)

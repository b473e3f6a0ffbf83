"""A run's result as a JSON document: plain figures, units in the names, without a table's rounding.

The document's envelope has `"schema": "kafka-quotas.load-test/2"`, `examples/load-test-run.schema.json` is its schema,
and `result.reading` reads it back. Series are columns: one list per figure, all of one length.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.result.prediction import Prediction
from kafka_quotas.loadtest.result.result import (
    BrokerSample,
    ClientResult,
    LoadResult,
    ProbeResult,
    SecondSample,
    WindowSample,
)
from kafka_quotas.loadtest.result.verdict import ClientVerdict

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""A value in a JSON document."""

NOUN = "load-test"
VERSION = 2
"""Name and version of the document's schema, which `cli.output.render` writes in front: `kafka-quotas.load-test/2`."""

SECOND_COLUMNS = tuple(field.name for field in fields(SecondSample) if field.name != "second")
WINDOW_COLUMNS = tuple(field.name for field in fields(WindowSample))
BROKER_COLUMNS = tuple(field.name for field in fields(BrokerSample))
PROBE_COLUMNS = tuple(field.name for field in fields(ProbeResult))


def run_document(result: LoadResult) -> dict[str, JsonValue]:
    """Return the whole result, with times and rates in the units that are named."""
    return {
        "title": result.title,
        "run_id": f"{result.run_id:016x}",
        "bootstrap": result.bootstrap,
        "started_ms": result.started_ms,
        "elapsed_s": round(result.elapsed_s, 3),
        "warmup_s": result.warmup_s,
        "quota_window": {"quota.window.num": result.window_samples, "quota.window.size.seconds": result.window_size_s},
        "cpu": {
            "process_share": round(result.cpu.process, 4),
            "python_share": round(result.cpu.python, 4),
            "cores": result.cpu.cores,
            "late_ms": round(result.cpu.late_ms, 3),
        },
        "control_factor": result.control_factor,
        "interrupted": result.interrupted,
        "ok": result.ok,
        "state": result.state.value,
        "judgements": [
            {
                "aspect": judgement.aspect.value,
                "entity": judgement.entity,
                "state": judgement.state.value,
                "evidence": judgement.evidence,
            }
            for judgement in result.judgements
        ],
        "warnings": list(result.warnings),
        "outages": list(result.outages),
        "restarts": list(result.restarts),
        "entities": [_entity(entity) for entity in result.entities],
        "broker_metrics": _columns(result.broker_samples, BROKER_COLUMNS),
        "probes": _columns(result.probes, PROBE_COLUMNS),
    }


def _entity(entity: ClientResult) -> dict[str, JsonValue]:
    return {
        "user": entity.name.user,
        "client_id": entity.name.client_id,
        "does": entity.workload.value,
        "client": entity.client.value,
        "topic": entity.topic,
        "control": entity.control,
        "enforcers": entity.enforcers,
        "unit": entity.unit.value,
        "ok": entity.ok,
        "quotas": dict(entity.quotas),
        "verdict": _verdict(entity.verdict),
        "records": {
            "sent": entity.sent,
            "acked": entity.acked,
            "unfinished": entity.unfinished,
            "dropped": entity.dropped,
            "failed": dict(entity.failures),
        },
        "books": asdict(entity.books),
        "delivery": None
        if entity.delivery is None
        else {**asdict(entity.delivery), "state": entity.delivery.state.value},
        "payload_bytes": entity.payload_bytes,
        "wire_ratio": round(entity.wire_ratio, 6),
        "latency": {
            "service": _latency(entity.service),
            "schedule_delay": _latency(entity.schedule_delay),
            "response": _latency(entity.response),
            "response_solo": None if entity.solo is None else _latency(entity.solo),
        },
        "quota_effect": None if entity.effect is None else asdict(entity.effect),
        "throttle": {**asdict(entity.throttle), "avg_ms": _rounded(entity.throttle.avg_ms, 3)},
        "prediction": _prediction(entity.prediction),
        "sample_s": entity.sample_s,
        "seconds": {
            "first": entity.seconds[0].second if entity.seconds else 0,
            **_columns(entity.seconds, SECOND_COLUMNS),
        },
        "windows": _columns(entity.windows, WINDOW_COLUMNS),
    }


def _columns(samples: Sequence[object], names: Sequence[str]) -> dict[str, JsonValue]:
    return {name: [_plain(getattr(sample, name)) for sample in samples] for name in names}


def _plain(value: JsonValue) -> JsonValue:
    return round(value, 3) if isinstance(value, float) else value


def _verdict(verdict: ClientVerdict) -> dict[str, JsonValue]:
    return {
        "kind": verdict.kind.value,
        "ok": verdict.ok,
        "achieved": round(verdict.achieved, 3),
        "offered": _rounded(verdict.offered, 3),
        "quota": verdict.quota,
        "ratio": _rounded(verdict.ratio, 6),
        "lower": _rounded(verdict.lower, 6),
        "upper": _rounded(verdict.upper, 6),
        "cycles": verdict.cycles,
        "span_ms": round(verdict.span_ms),
        "too_short": verdict.too_short,
        "settled_ms": _rounded(verdict.settled_ms, 3),
        "evidence": verdict.evidence,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """Return the value rounded, None for an infinite bound."""
    return None if value is None or math.isinf(value) else round(value, digits)


def _latency(summary: LatencySummary) -> dict[str, JsonValue]:
    return {**asdict(summary), "mean_us": round(summary.mean_us, 3)}


def _prediction(prediction: Prediction | None) -> JsonValue:
    if prediction is None:
        return None
    return {**asdict(prediction), "source": prediction.source.value, "state": prediction.state.value}

"""A run's result as a JSON document: plain figures, units in the names, nothing that a table would round."""

import math
from collections.abc import Mapping, Sequence

from kafka_quotas.loadtest.recorder import LatencySummary, ThrottleSummary
from kafka_quotas.loadtest.result import EntityResult, LoadResult
from kafka_quotas.loadtest.verdict import EntityVerdict

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""What a JSON document holds."""

NOUN = "load-test"
"""The name of the document's schema, which `cli.render` writes in front: `kafka-quotas.load-test/1`."""


def run_document(result: LoadResult) -> dict[str, JsonValue]:
    """The whole result; times in the units of their names, rates in bytes/s."""
    return {
        "bootstrap": result.bootstrap,
        "started_ms": result.started_ms,
        "elapsed_s": round(result.elapsed_s, 3),
        "warmup_s": result.warmup_s,
        "quota_window": {"quota.window.num": result.window_samples, "quota.window.size.seconds": result.window_size_s},
        "record_size": result.record_size,
        "cpu_share": round(result.cpu_share, 4),
        "interrupted": result.interrupted,
        "ok": result.ok,
        "entities": [_entity(entity) for entity in result.entities],
    }


def _entity(entity: EntityResult) -> dict[str, JsonValue]:
    return {
        "user": entity.name.user,
        "client_id": entity.name.client_id,
        "direction": entity.direction.value,
        "topic": entity.topic,
        "enforcers": entity.enforcers,
        "ok": entity.ok,
        "verdict": _verdict(entity.verdict),
        "records": {
            "sent": entity.sent,
            "acked": entity.acked,
            "unfinished": entity.unfinished,
            "failed": dict(entity.failures),
        },
        "payload_bytes": entity.payload_bytes,
        "wire_ratio": round(entity.wire_ratio, 6),
        "latency": {
            "service": _latency(entity.service),
            "schedule_delay": _latency(entity.schedule_delay),
            "response": _latency(entity.response),
        },
        "throttle": _throttle(entity.throttle),
        "seconds": [
            {"second": each.second, "bytes_per_second": each.bytes_per_second, "throttle_ms": each.throttle_ms}
            for each in entity.seconds
        ],
    }


def _verdict(verdict: EntityVerdict) -> dict[str, JsonValue]:
    return {
        "kind": verdict.kind.value,
        "ok": verdict.ok,
        "achieved_bytes_per_second": round(verdict.achieved_bytes_per_second, 3),
        "offered_bytes_per_second": _rounded(verdict.offered_bytes_per_second, 3),
        "quota_bytes_per_second": verdict.quota_bytes_per_second,
        "ratio": _rounded(verdict.ratio, 6),
        "lower": _rounded(verdict.lower, 6),
        "upper": _rounded(verdict.upper, 6),
        "cycles": verdict.cycles,
        "span_ms": round(verdict.span_ms),
        "too_short": verdict.too_short,
        "evidence": verdict.evidence,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """The value rounded; an upper bound that bounds nothing is none."""
    return None if value is None or math.isinf(value) else round(value, digits)


def _latency(summary: LatencySummary) -> dict[str, JsonValue]:
    return {
        "count": summary.count,
        "min_us": summary.min_us,
        "mean_us": round(summary.mean_us, 3),
        "p50_us": summary.p50_us,
        "p90_us": summary.p90_us,
        "p99_us": summary.p99_us,
        "p999_us": summary.p999_us,
        "max_us": summary.max_us,
    }


def _throttle(summary: ThrottleSummary) -> dict[str, JsonValue]:
    return {
        "count": summary.count,
        "sum_ms": summary.sum_ms,
        "p50_ms": summary.p50_ms,
        "p99_ms": summary.p99_ms,
        "max_ms": summary.max_ms,
    }

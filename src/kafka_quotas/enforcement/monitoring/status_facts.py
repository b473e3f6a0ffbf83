"""A daemon's status as lines of a label and a text, for `daemon status` and for the page."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kafka_quotas.core.model.value_format import format_bytes, format_count
from kafka_quotas.enforcement.config.settings import acls_needed
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, FleetRow

_FEW: Final = 10


def status_facts(status: DaemonStatus) -> Iterator[tuple[str, str]]:
    """Yield the facts about a daemon, e.g. nothing about thresholds if there are none."""
    store, totals = status.store, status.quota_totals
    counters = Counter(status.counters)  # 0 for those that an older daemon lacks
    draining = ", draining" if status.draining else ""
    yield "daemon", f"process {status.pid}, up {status.uptime_ms / 1000:.0f} s, {status.event_loop}{draining}"
    window = f"window {status.window_num} x {status.window_size_seconds} s"
    yield "enforcing", f"{status.throttle_style}, fetches over quota: {status.fetch_over_quota}, {window}"
    yield "mode", f"{status.mode}, limits per {status.scope}, over a limit: {status.on_violation}"
    if any(row.estimated for row in status.buckets):
        yield "request times", f"estimated, {status.cost_model}"
    trouble = f", can't be read now: {store.trouble}" if store.trouble else ""
    limits = format_count(store.limits, "limit")
    yield "store", f"{store.url}, {limits}, confirmed {store.age_ms / 1000:.1f} s ago{trouble}"
    if status.fleet is not None:
        for text in _fleet(status.fleet):
            yield "fleet", text
    if status.workers:
        rows = sorted(status.workers, key=lambda row: row.number)
        shown = ", ".join(f"{row.pid} with {format_count(row.connections, 'connection')}" for row in rows)
        yield "workers", f"{len(rows)}, processes {shown}; started again: {sum(row.starts - 1 for row in rows)}"
    yield "listeners", ", ".join(f"{row.broker}: {row.listen} -> {row.upstream}" for row in status.listeners)
    accepted, failed = counters["connections_accepted"], counters["connections_failed"]
    yield "connections", f"{status.connections} open, {accepted} accepted, {failed} failed"
    received, sent = format_bytes(counters["request_bytes"]), format_bytes(counters["response_bytes"])
    yield "requests", f"{counters['requests']}, {received} in, {sent} out"
    upstream = sum(each.upstream_times for each in totals)
    yield "throttle times set", f"{sum(each.times for each in totals)}; also throttled by the brokers: {upstream}"
    late, fast, many = (counters[f"connections_{each}"] for each in ("delayed", "throttled", "refused"))
    if late + fast + many:
        yield "kept out", f"{late} came in late, {fast} ended as made too fast, {many} as one too many of their address"
    yield from _thresholds(status)
    if counters["refused_requests"]:
        yield "requests refused with an error for their client's byte rate", str(counters["refused_requests"])
    shadows = sum(each.shadow_times for each in totals)
    if shadows:
        yield "throttle times that shadows would have got", str(shadows)
    if counters["unknown_principals"]:
        yield "principals that can't be read", str(counters["unknown_principals"])


def _fleet(fleet: FleetRow) -> Iterator[str]:
    strangers = f", {fleet.not_trusted} not trusted" if fleet.not_trusted else ""
    clocks = f", {fleet.wrong_clocks} with a wrong clock" if fleet.wrong_clocks else ""
    members = ", ".join((f"{fleet.member} (this one)", *fleet.others))
    count = format_count(fleet.members, "member")
    shared = f"{fleet.shared_buckets} limits shared at present"
    yield f"{fleet.name} by {fleet.topic}, {count}: {members}{strangers}{clocks}; {shared}"
    for stranger in fleet.strangers[:_FEW]:
        yield f"NOT TRUSTED: {stranger}"
    if not fleet.signs:
        signing = f"; signed by {', '.join(fleet.signing)}" if fleet.signing else ""
        yield f"reports are NOT SIGNED{signing}; needs {acls_needed(fleet.topic.rpartition('/')[2])}"
    refused = ", ".join(f"{total} {reason}" for reason, total in fleet.refused.items() if total)
    if refused:
        yield f"reports that did not count: {refused}"
    if fleet.cut_off:
        trouble = f": {fleet.trouble}" if fleet.trouble else ""
        yield f"CUT OFF from the other members{trouble}; allows {fleet.fallback}"


def _thresholds(status: DaemonStatus) -> Iterator[tuple[str, str]]:
    totals = [row for row in status.thresholds if not row.topic and row.threshold is not None]
    for total in totals:
        over = [
            f"{row.topic} ({format_bytes(row.observed)}/s of {format_bytes(row.threshold)}/s)"
            for row in status.thresholds
            if row.broker == total.broker and row.topic and row.threshold is not None and row.observed > row.threshold
        ]
        taken = f"{format_bytes(total.observed)}/s of {format_bytes(total.threshold or 0)}/s"
        yield "thresholds", f"broker {total.broker} takes in {taken}; topics over theirs: {', '.join(over) or 'none'}"
    if totals:
        counters = Counter(status.counters)
        rejected, batches = counters["threshold_rejected_bytes"], counters["threshold_rejected_batches"]
        yield "rejected over thresholds", f"{format_bytes(rejected)} in {batches} batches"

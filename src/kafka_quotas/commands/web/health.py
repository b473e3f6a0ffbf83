"""A daemon's health as lines of a page: what it does, and what is wrong with it."""

from collections.abc import Iterator

from kafka_quotas.commands.web.figures import duration_text
from kafka_quotas.commands.web.live_quotas import Document
from kafka_quotas.core.model.value_format import format_bytes, format_count, format_duration_s
from kafka_quotas.enforcement.telemetry.status import DaemonStatus


def health_document(status: DaemonStatus) -> Document:
    """Return the troubles of a daemon, and its state as pairs of a label and a text."""
    return {
        "troubles": list(_troubles(status)),
        "facts": [{"label": label, "text": text} for label, text in _facts(status)],
        "listeners": [
            {"broker": row.broker, "listen": row.listen, "upstream": row.upstream, "connections": row.connections}
            for row in status.listeners
        ],
    }


def _troubles(status: DaemonStatus) -> Iterator[str]:
    if status.draining:
        yield "the daemon drains: it takes no new connection and ends"
    if status.store.trouble:
        age = duration_text(status.store.age_ms)
        yield f"the store can't be read ({status.store.trouble}); its content of {age} ago stays in force"
    if status.fleet is not None and status.fleet.cut_off:
        yield f"cut off from the other daemons of its fleet; it allows {status.fleet.fallback}"
    dropped = status.counters.get("events_dropped", 0)
    if dropped:
        yield f"the event log has lost {format_count(dropped, 'charge', separator=',')}"


def _facts(status: DaemonStatus) -> Iterator[tuple[str, str]]:
    counters, store, totals = status.counters, status.store, status.quota_totals
    yield "Daemon", f"process {status.pid}, up {format_duration_s(status.uptime_ms // 1000)}, {status.event_loop}"
    yield "Upstream", status.upstream
    yield "Store", f"{store.url}, {format_count(store.limits, 'limit')}, confirmed {duration_text(store.age_ms)} ago"
    yield "Enforces", f"mode {status.mode}, limits per {status.scope}, over a limit: {status.on_violation}"
    yield "Quota window", f"{status.window_num} x {status.window_size_seconds} s"
    accepted, failed = counters.get("connections_accepted", 0), counters.get("connections_failed", 0)
    yield "Connections", f"{status.connections:,} open, {accepted:,} accepted, {failed:,} failed"
    received, sent = (format_bytes(counters.get(name, 0)) for name in ("request_bytes", "response_bytes"))
    yield "Requests", f"{counters.get('requests', 0):,}, {received} in, {sent} out"
    times, shadow = sum(each.times for each in totals), sum(each.shadow_times for each in totals)
    yield "Throttle times set", f"{times:,}" + (f", and {shadow:,} that shadows would have got" if shadow else "")
    refused, upstream = sum(each.refused_times for each in totals), sum(each.upstream_times for each in totals)
    if refused:
        yield "Requests refused", f"{refused:,}"
    if upstream:
        yield "Throttled by brokers", f"{format_count(upstream, 'time', separator=',')}, clients limited here as well"
    if any(row.estimated for row in status.buckets):
        yield "Request times", f"estimated, {status.cost_model}"
    if status.fleet is not None:
        fleet = status.fleet
        yield (
            "Fleet",
            f"{fleet.name}: {format_count(fleet.members, 'member')}, {fleet.shared_buckets} limits shared now",
        )

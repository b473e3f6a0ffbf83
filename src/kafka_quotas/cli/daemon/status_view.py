"""The answers of a daemon as listings: its status, a reload, unmuted clients, a decision."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kafka_quotas.cli.output.render import Listing, Table, columns
from kafka_quotas.cli.output.values import client_text, last_minute_text
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, REQUEST_RATE, Unit
from kafka_quotas.core.model.recent_throttling import RecentThrottling
from kafka_quotas.core.model.sanitizer import desanitize
from kafka_quotas.core.model.value_format import format_byte_rate, format_bytes, format_count
from kafka_quotas.enforcement.config.settings import acls_needed
from kafka_quotas.enforcement.decisions import Decision, decision_to_json
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER
from kafka_quotas.enforcement.quotas.reload import Reloaded
from kafka_quotas.enforcement.session.unmute import Unmuted
from kafka_quotas.enforcement.telemetry.status import BucketRow, DaemonStatus, FleetRow, ThrottledClient, WorkerRow

_COLUMNS = columns("quota, entity, user, client-id, broker, limit>, observed>, connections>, throttle>, remaining>")

_DECISION_COLUMNS = columns("delay>, quota, entity, limit>, observed>")
_UNMUTED_COLUMNS = columns("user, client-id, broker, quota, connections>, remaining>")
_FEW = 10
_RELOAD_COLUMNS = columns("store, trouble, changed>, limits>")


def status_listing(status: DaemonStatus) -> Listing:
    """List the throttled clients as a table under a summary, and everything as JSON."""
    rows = []
    for row in status.throttled:
        who = (row.quota, row.entity, row.user, row.client_id, row.broker)
        observed = _rate(row.quota, row.observed) + (" (estimated)" if row.estimated else "")
        times = (f"{row.throttle_ms} ms", f"{row.remaining_ms} ms")
        rows.append((*who, _rate(row.quota, row.limit), observed, row.connections, *times))
    return Listing(
        noun="daemon-status",
        items="throttled",
        data={**asdict(status), "throttled": [_throttled_row(row) for row in status.throttled]},
        table=Table(columns=_COLUMNS, rows=rows, caption=_summary(status)),
    )


def _throttled_row(row: ThrottledClient) -> dict[str, Any]:
    return {**asdict(row), "entity": Entity.from_text(row.entity).to_mapping() if row.entity else None}


def _rate(quota: str, value: float) -> str:
    unit = next((key.unit for key in (*QUOTA_KEYS.values(), REQUEST_RATE) if key.name == quota), None)
    if unit is None or unit is Unit.BYTES_PER_SECOND:
        return format_byte_rate(value)
    return f"{value:.4g} {unit.value}"


def reload_listing(result: Reloaded) -> Listing:
    """List the result of a reload as one row."""
    row = (result.store, result.store_trouble or "", result.changed, result.limits)
    read = "no; its last content stays in force" if result.store_trouble else "yes"
    caption = f"files read: {', '.join(result.files) or 'none'}\nstore read: {read}"
    table = Table(columns=_RELOAD_COLUMNS, rows=[row], caption=caption)
    return Listing(noun="daemon-reload", data=asdict(result), table=table)


def _over_thresholds(status: DaemonStatus) -> list[str]:
    """Return one line for each broker with a total threshold, and one for the rejected batches.

    A broker's line holds its inbound rate and the topics over their own thresholds.
    """
    lines = []
    for total in status.thresholds:
        if total.topic or total.threshold is None:
            continue
        over = [
            f"{row.topic} ({format_bytes(row.observed)}/s of {format_bytes(row.threshold)}/s)"
            for row in status.thresholds
            if row.broker == total.broker and row.topic and row.threshold is not None and row.observed > row.threshold
        ]
        taken = f"{format_bytes(total.observed)}/s of {format_bytes(total.threshold)}/s"
        lines.append(
            f"thresholds: broker {total.broker} takes in {taken}; topics over theirs: {', '.join(over) or 'none'}"
        )
    if lines:
        rejected = format_bytes(status.counters["threshold_rejected_bytes"])
        lines.append(f"rejected over thresholds: {rejected} in {status.counters['threshold_rejected_batches']} batches")
    return lines


def _kept_out(counters: Mapping[str, int]) -> list[str]:
    late, fast, many = (counters[f"connections_{what}"] for what in ("delayed", "throttled", "refused"))
    if not late + fast + many:
        return []
    return [f"kept out: {late} came in late, {fast} ended as made too fast, {many} as one too many of their address"]


def _fleet(fleet: FleetRow | None) -> list[str]:
    """Return lines about the fleet and what is wrong with it, none without a fleet."""
    if fleet is None:
        return []
    strangers = f", {fleet.not_trusted} not trusted" if fleet.not_trusted else ""
    clocks = f", {fleet.wrong_clocks} with a wrong clock" if fleet.wrong_clocks else ""
    members = ", ".join((f"{fleet.member} (this one)", *fleet.others))
    shared = f"{fleet.shared_buckets} limits shared at present"
    count = "1 member" if fleet.members == 1 else f"{fleet.members} members"
    lines = [f"fleet: {fleet.name} by {fleet.topic}, {count}: {members}{strangers}{clocks}; {shared}"]
    lines += [f"fleet: NOT TRUSTED: {stranger}" for stranger in fleet.strangers[:_FEW]]
    if not fleet.signs:
        signing = f"; signed by {', '.join(fleet.signing)}" if fleet.signing else ""
        lines.append(f"fleet: reports are NOT SIGNED{signing}; needs {acls_needed(fleet.topic.rpartition('/')[2])}")
    refused = ", ".join(f"{total} {reason}" for reason, total in fleet.refused.items() if total)
    if refused:
        lines.append(f"fleet: reports that did not count: {refused}")
    if fleet.cut_off:
        trouble = f": {fleet.trouble}" if fleet.trouble else ""
        lines.append(f"fleet: CUT OFF from the other members{trouble}; allows {fleet.fallback}")
    return lines


def _workers(workers: tuple[WorkerRow, ...]) -> list[str]:
    """Return one line about the processes that serve connections, none where the daemon itself does."""
    if not workers:
        return []
    rows = sorted(workers, key=lambda row: row.number)
    shown = ", ".join(f"{row.pid} with {format_count(row.connections, 'connection')}" for row in rows)
    again = sum(row.starts - 1 for row in rows)
    return [f"workers: {len(rows)}, processes {shown}; started again: {again}"]


def _last_minute(status: DaemonStatus) -> list[str]:
    """Return one line for each of the buckets that were throttled longest in the last minute."""
    held = sorted(
        (row for row in status.buckets if row.last_minute_times), key=lambda row: row.last_minute_held_ms, reverse=True
    )
    if not held:
        return ["throttled in the last minute: nobody"]
    more = [f"  and {format_count(len(held) - _FEW, 'more bucket')}"] if len(held) > _FEW else []
    return ["throttled in the last minute:", *map(_last_minute_line, held[:_FEW]), *more]


def _last_minute_line(row: BucketRow) -> str:
    recent = RecentThrottling(
        times=row.last_minute_times, total_ms=row.last_minute_total_ms, held_ms=row.last_minute_held_ms
    )
    whom = client_text(desanitize(row.user), row.client_id)
    broker = "all brokers together" if row.broker == CLUSTER else f"broker {row.broker}"
    return f"  {whom} at {broker} by {row.quota}: {last_minute_text(recent)} of the minute"


def _summary(status: DaemonStatus) -> str:
    store, counters = status.store, status.counters
    limits = format_count(store.limits, "limit")
    trouble = f", can't be read now: {store.trouble}" if store.trouble else ""
    throttles = sum(totals.times for totals in status.quota_totals)
    upstream = sum(totals.upstream_times for totals in status.quota_totals)
    listeners = ", ".join(f"{row.broker}: {row.listen} -> {row.upstream}" for row in status.listeners)
    draining = ", draining" if status.draining else ""
    window = f"window {status.window_num} x {status.window_size_seconds} s"
    accepted, failed = counters["connections_accepted"], counters["connections_failed"]
    received, sent = format_bytes(counters["request_bytes"]), format_bytes(counters["response_bytes"])
    estimates = (
        [f"request times: estimated, {status.cost_model}"] if any(row.estimated for row in status.buckets) else []
    )
    lines = [
        f"daemon {status.pid}, up {status.uptime_ms / 1000:.0f} s, {status.event_loop}{draining}",
        f"enforcing: {status.throttle_style}, fetches over quota: {status.fetch_over_quota}, {window}",
        f"mode: {status.mode}, limits per {status.scope}, over a limit: {status.on_violation}",
        *estimates,
        f"store: {store.url}, {limits}, confirmed {store.age_ms / 1000:.1f} s ago{trouble}",
        *_fleet(status.fleet),
        *_workers(status.workers),
        f"listeners: {listeners}",
        f"connections: {status.connections} open, {accepted} accepted, {failed} failed",
        f"requests: {counters['requests']}, {received} in, {sent} out",
        f"throttle times set: {throttles}; also throttled by the brokers: {upstream}",
    ]
    lines += _kept_out(counters)
    lines += _over_thresholds(status)
    if counters["refused_requests"]:
        lines.append(f"requests refused with an error for their client's byte rate: {counters['refused_requests']}")
    shadows = sum(totals.shadow_times for totals in status.quota_totals)
    if shadows:
        lines.append(f"throttle times that shadows would have got: {shadows}")
    if counters["unknown_principals"]:
        lines.append(f"principals that can't be read: {counters['unknown_principals']}")
    lines += _last_minute(status)
    lines.append("throttled now:" if status.throttled else "throttled now: nobody")
    return "\n".join(lines)


def unmuted_listing(result: Unmuted) -> Listing:
    """List the clients that the daemon released, one row each."""
    names = [(row.user, row.client_id, row.broker, row.quota, row.connections) for row in result.unmuted]
    left = [row.remaining_ms for row in result.unmuted]
    return Listing(
        noun="daemon-unmute",
        items="unmuted",
        data=asdict(result),
        table=Table(
            columns=_UNMUTED_COLUMNS,
            rows=[(*name, f"{ms} ms") for name, ms in zip(names, left, strict=True)],
            caption="let go:" if names else "nobody of that name is throttled",
        ),
    )


def decision_listing(decision: Decision) -> Listing:
    """Return one decision as a table of one row, and as JSON."""
    limit = f"{decision.limit:g}" if decision.entity else "unlimited"
    delay = f"{decision.delay_ms} ms" + (" (shadow)" if decision.is_shadow else "")
    row = (delay, decision.quota, decision.entity, limit, f"{decision.observed:.6g}")
    data = decision_to_json(decision)
    if data["quota"]:
        data["quota"]["entity"] = Entity.from_text(decision.entity).to_mapping()
    return Listing(
        noun="decision",
        data=data,
        table=Table(columns=_DECISION_COLUMNS, rows=[row]),
    )

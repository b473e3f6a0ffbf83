"""The answers of a daemon as listings: its status, a reload, unmuted clients, a decision."""

from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import Listing, Table, columns
from kafka_quotas.cli.output.values import client_text, last_minute_text
from kafka_quotas.core.model.entity import Entity, desanitize
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, REQUEST_RATE, Unit
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.model.value_format import format_byte_rate, format_count
from kafka_quotas.enforcement import (
    CLUSTER,
    BucketRow,
    DaemonStatus,
    Decision,
    Reloaded,
    Unmuted,
    decision_to_json,
    status_facts,
)

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
        data=document_of(status),
        table=Table(columns=_COLUMNS, rows=rows, caption=_summary(status)),
    )


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
    return Listing(noun="daemon-reload", data=document_of(result), table=table)


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
    lines = [f"{label}: {text}" for label, text in status_facts(status)]
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
        data=document_of(result),
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

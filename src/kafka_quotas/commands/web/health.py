"""A daemon's health as lines of a page: what it does, and what is wrong with it."""

from collections.abc import Iterator

from kafka_quotas.commands.web.figures import duration_text
from kafka_quotas.commands.web.live_quotas import Document
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.enforcement.monitoring.status_facts import status_facts
from kafka_quotas.enforcement.telemetry.status import DaemonStatus


def health_document(status: DaemonStatus) -> Document:
    """Return the troubles of a daemon, and its state as pairs of a label and a text."""
    return {
        "troubles": list(_troubles(status)),
        "facts": [{"label": label.capitalize(), "text": text} for label, text in status_facts(status)],
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

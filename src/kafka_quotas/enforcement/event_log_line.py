"""A charge as one line of JSON: the format of the event log, which `docs/daemon.md` describes.

Invariants: one line is one object, in ASCII, without a line break in it; every line has every field, in one order.
"""

import json
from functools import lru_cache
from typing import Final

from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.event_log import Charge, ChargeSource

VERSION: Final = 1
"""Grows when a field changes its meaning or goes; readers pass over fields that they don't know."""
FIELDS: Final = (
    "v",
    "ts_ms",
    "cluster",
    "broker_id",
    "connection",
    "user",
    "client_id",
    "ip",
    "quota_type",
    "api_key",
    "bytes",
    "thread_ms",
    "mutations",
    "throttle_ms",
    "is_exempt",
)
"""Every field of a line, in order."""

_MAX_REMEMBERED: Final = 256
"""Characters of the longest name whose spelling is remembered: names can have 32,767."""
_remembered = lru_cache(maxsize=8192)(json.dumps)
_ZERO_COLUMNS: Final = '"bytes":{},"thread_ms":{},"mutations":{}'
_COLUMNS: Final = dict.fromkeys(QuotaType, _ZERO_COLUMNS.format("0", "0", "0%.0s")) | {
    QuotaType.PRODUCE: _ZERO_COLUMNS.format("%d", "0", "0"),
    QuotaType.FETCH: _ZERO_COLUMNS.format("%d", "0", "0"),
    QuotaType.REQUEST: _ZERO_COLUMNS.format("0", "%.6g", "0"),
    QuotaType.CONTROLLER_MUTATION: _ZERO_COLUMNS.format("0", "0", "%d"),
}
"""The three figures by quota type, the one that is charged left open; types that have none count lines."""


def _quoted(text: str) -> str:
    return _remembered(text) if len(text) <= _MAX_REMEMBERED else json.dumps(text)


def charge_line(cluster: str, source: ChargeSource, charge: Charge) -> str:
    """The line, with its line break, of what a source charged at a broker of this cluster."""
    ts_ms, user, client_id, quota_type, api_key, amount, throttle_ms, is_exempt = charge
    node_id = source.route.node_id
    return (
        f'{{"v":{VERSION},"ts_ms":{ts_ms},"cluster":{_quoted(cluster)},'
        f'"broker_id":{"null" if node_id is None else node_id},"connection":{source.connection},'
        f'"user":{_quoted(user)},"client_id":{_quoted(client_id)},"ip":{_quoted(source.ip)},'
        f'"quota_type":"{quota_type.value}","api_key":{api_key},{_COLUMNS[quota_type] % amount},'
        f'"throttle_ms":{throttle_ms},"is_exempt":{"true" if is_exempt else "false"}}}\n'
    )

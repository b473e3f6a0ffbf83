"""A line of the daemon's event log as an event: one charge of one quota, with exact bytes.

The format is version 1 as in `docs/reference/event-log.md`. Its thread time comes from the daemon's cost model.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.formats.rows import AMOUNT_LIMIT, LAST_MS, BadLineError, EventRow

VERSION: Final = 1
_TYPES: Final = frozenset(each.value for each in QuotaType)
_TEXTS: Final = ("cluster", "user", "client_id", "ip")
_FIGURES: Final = ("bytes", "mutations", "throttle_ms")
_LARGEST_INT: Final = 2**31 - 1
_NO_API: Final = -1
"""The API of what another program asked the daemon to charge."""


def parse_daemon_line(line: bytes, *, offset: int, src_file: str) -> EventRow:
    """Parse the event of a line.

    Raises:
        BadLineError: The line is no charge of version 1.
    """
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"broken JSON: {error.msg}") from error
    if not isinstance(entry, dict) or entry.get("v") != VERSION:
        raise BadLineError(f"not an event of version {VERSION}")
    try:
        _check(entry)
        return _event(entry, offset=offset, src_file=src_file)
    except KeyError as error:
        raise BadLineError(f"the event lacks {error.args[0]}") from error


def _event(entry: Mapping[str, Any], *, offset: int, src_file: str) -> EventRow:
    is_request = entry["quota_type"] == QuotaType.REQUEST.value
    broker_id = entry["broker_id"]
    return EventRow(
        cluster=entry["cluster"],
        broker_id=-1 if broker_id is None else broker_id,
        ts_ms=entry["ts_ms"],
        user=entry["user"],
        client_id=entry["client_id"],
        ip=entry["ip"],
        quota_type=entry["quota_type"],
        bytes=entry["bytes"],
        thread_ms=float(entry["thread_ms"]) if is_request else None,
        mutations=entry["mutations"],
        throttle_ms=entry["throttle_ms"],
        api_key=entry["api_key"],
        is_exempt=entry["is_exempt"],
        is_estimated=False,
        is_thread_estimated=is_request,
        connection=str(entry["connection"]),
        src_file=src_file,
        src_offset=offset,
    )


def _check(entry: Mapping[str, Any]) -> None:
    """Check that every field has its type and fits its column.

    Raises:
        BadLineError: A field has another type or is out of range.
        KeyError: A field is missing.
    """
    good = (
        entry["quota_type"] in _TYPES
        and all(isinstance(entry[name], str) for name in _TEXTS)
        and all(_is_whole(entry[name], below=AMOUNT_LIMIT) for name in _FIGURES)
        and _is_whole(entry["ts_ms"], below=LAST_MS)
        and _is_whole(entry["mutations"], below=_LARGEST_INT)
        and _is_whole(entry["api_key"], least=_NO_API, below=2**15)
        and (entry["broker_id"] is None or _is_whole(entry["broker_id"], below=_LARGEST_INT))
        and isinstance(entry["connection"], int | str)
        and isinstance(entry["thread_ms"], int | float)
        and isinstance(entry["is_exempt"], bool)
    )
    if not good:
        raise BadLineError("the event has a field of another kind, or out of range")


def _is_whole(value: object, *, below: int, least: int = 0) -> bool:
    return type(value) is int and least <= value < below

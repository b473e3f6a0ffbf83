"""Moments as people and journals write them: `2026-11-21T15:15:42.123Z`, always UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_instant(time_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 text in UTC, to the millisecond."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """The milliseconds since the epoch that an ISO 8601 text with a zone means.

    Raises `ValueError` where it is no such text.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)

"""Fetch requests with lowered limits."""

from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.fetch_request import fetch_limits


def limits_of(frame: bytes | bytearray, header: RequestHeader) -> tuple[int, int | None] | None:
    """The smallest and the largest size that a request asks for, None if its bytes are not enough."""
    found = fetch_limits(frame, header)
    return None if found is None else (found.min_bytes, found.max_bytes)


def lower_fetch(frame: bytearray, header: RequestHeader, size: int) -> tuple[int, int | None] | None:
    """Lower the limits in a request, and return those before as `limits_of` does."""
    found = fetch_limits(frame, header)
    if found is not None:
        lowered = found.lowered(size)
        frame[found.start : found.start + len(lowered)] = lowered
    return None if found is None else (found.min_bytes, found.max_bytes)

"""Readers of the responses that count for `consumer_byte_rate`: one form per API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kafka_quotas.enforcement.session.frame_stream import FindTail
from kafka_quotas.enforcement.session.in_flight import FETCH, SHARE_FETCH
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing import fetch_response, share_fetch_response
from kafka_quotas.wire.passing.broker_addresses import Translate


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchForm:
    """The readers of one API's response, which charge and rewrite it without parsing its records."""

    charged_bytes: Callable[[int, Buffer, int, int], int | None]
    """(version, buffer, start of the response, value of its length field) -> the bytes that count for the quota, None
    if more bytes are needed."""
    error_code: Callable[[int, Buffer, int], int | None]
    """(version, buffer, start) -> the error of the response as a whole (0: none), None if more bytes are needed."""
    names_no_brokers: Callable[[Buffer, int, int], bool]
    """(buffer, start, end of the whole response) -> whether it certainly holds no addresses."""
    find_tail: Callable[[int], FindTail]
    """(value of its length field) -> the finder of the part at its end that may hold addresses."""
    rewrite_tail: Callable[[int, Buffer, Translate], bytes]
    """(version, that part) -> that part with our addresses, at the same length."""


def _fetch_error(api_version: int, buffer: Buffer, start: int) -> int | None:
    result = fetch_response.fetch_result(api_version, buffer, start)
    return None if result is None else result[0]


def _share_fetch_bytes(_api_version: int, buffer: Buffer, start: int, length: int) -> int | None:
    error_code = share_fetch_response.error_code(buffer, start)
    if error_code is None:
        return None
    # `processShareFetchResponse` charges nothing for a response with an error of its own.
    return 0 if error_code else share_fetch_response.charged_bytes(length)


FETCH_FORMS: Final[Mapping[int, FetchForm]] = MappingProxyType(
    {
        FETCH: FetchForm(
            charged_bytes=lambda version, _buffer, _start, length: fetch_response.charged_bytes(version, length),
            error_code=_fetch_error,
            names_no_brokers=fetch_response.is_bare,
            find_tail=lambda length: fetch_response.FetchTail(length).find,
            rewrite_tail=fetch_response.rewrite_tail,
        ),
        SHARE_FETCH: FetchForm(
            charged_bytes=_share_fetch_bytes,
            error_code=lambda _, buffer, start: share_fetch_response.error_code(buffer, start),
            names_no_brokers=lambda buffer, _, end: share_fetch_response.names_no_brokers(buffer, end),
            find_tail=lambda length: share_fetch_response.ShareFetchTail(length).find,
            rewrite_tail=share_fetch_response.rewrite_share_tail,
        ),
    }
)
"""API key -> form, for every API whose response counts for the quota.

**Source:** `KafkaApis.handleFetchRequest` charges every response, `processShareFetchResponse` those without an error
as a whole (4.3.1).
"""

"""What deals with whole requests and their responses, rather than with their first bytes.

A request that somebody treats is gathered. The treatment sees it when its last byte is there and says what becomes of
it: it goes on as it is or changed, it is answered here without the broker, or the broker is asked something first, on
the same connection and in front of it. No byte of the client behind the request passes before that is settled, and the
response is gathered and shown to the treatment before the client sees it.

No I/O and no clock, as in the session. Frames are whole, their length field included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.request_header import RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The request goes on to the broker, as this frame."""

    frame: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The request goes no further; this is its response, in its turn. None: a request that wants no response."""

    frame: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """This request of our own goes to the broker first; `on_told` gets its response, then `on_request` is called again.

    The response carries the correlation id of the treated request and never reaches the client.
    """

    frame: bytes


Verdict: TypeAlias = Forward | Respond | SendRequest


Charge: TypeAlias = tuple[Limiter, float]
"""What was recorded with a limiter, in the unit of its quota; taken back where it is negative."""


class RequestFilter(Protocol):
    """Deals with one exchange; made when its header has been seen.

    It may make the client wait by `exchange.throttled`.
    """

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """What becomes of a request. Raises `ProtocolError` where it can't be what its header says."""
        ...

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Nothing; the broker answered what the last `SendRequest` asked."""
        ...

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """The response as the client shall see it, but for addresses and the throttle time."""
        ...

    def charges(self) -> Sequence[Charge]:
        """What was recorded since this was asked last, for the event log."""
        ...


class NotFiltered(Enum):
    """Why nobody deals with a request."""

    STREAMS = "it passes as it comes"
    NEED_MORE = "more of its bytes are needed to tell"


class FilterFactory(Protocol):
    """Decides for one API, by a request's first bytes, whether somebody deals with it as a whole.

    A session has one per API that somebody treats (`Session(claims=...)`); the daemon makes them, one per broker or
    connection as it likes.
    """

    @property
    def is_active(self) -> bool:
        """Whether any request may be claimed at the moment; asked for each request of the API, so it must be cheap."""
        ...

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """Who deals with the request that starts at `header.start` of the chunk, as far as the chunk has it.

        `exchange.client` has the limiters and the terms of its client. What is claimed holds back what the client sends
        behind it until its response has been seen; a claim may reset `exchange.decides` where that is not wanted,
        because no throttle time will come of it.
        """
        ...


MAX_TOPIC_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Longest request about topics that is read as a whole: the most topics that may be named, at some 200 bytes each."""


def check_topic_request(header: RequestHeader) -> None:
    """Check that a request about topics is short enough to be read as a whole.

    Raises:
        ProtocolError: It is not, and passed on it would be a way around a quota.
    """
    if header.frame_length > MAX_TOPIC_REQUEST_BYTES:
        raise ProtocolError(
            f"a request of API {header.api_key} announces {header.frame_length} bytes, "
            f"{MAX_TOPIC_REQUEST_BYTES} are the limit where its topics count for a quota",
            hint="name fewer topics at a time",
        )


NO_FILTERS: Final[Mapping[int, FilterFactory]] = MappingProxyType({})
"""By API key, who may treat requests of that API as a whole: nobody."""

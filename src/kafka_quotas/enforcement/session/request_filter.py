"""The base of filters, which see whole requests and responses rather than their first bytes.

The session gathers a filtered request and gives it to the filter after its last byte. The filter forwards it, unchanged
or changed, responds to it without the broker, or first sends the broker a request of its own, on the same connection
and before the filtered one. No byte of the client after the request passes until that is decided. The session also
gathers the response and gives it to the filter before the client sees it.

No I/O and no clock, as in the session. Frames are whole, including their length field.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.header import RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The verdict that the broker gets the request."""

    frame: Buffer
    """The request as the broker gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The verdict that the daemon responds in place of the broker."""

    frame: bytes | None
    """The response, which goes out in the order of the requests; None for a request without a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """The verdict that the broker gets a request of the daemon's own first.

    `on_response_to_own` gets its response, which the client never sees, then the session calls `on_request` again.
    """

    frame: bytes
    """The daemon's own request, with the correlation id of the filtered one."""


Verdict: TypeAlias = Forward | Respond | SendRequest


Charge: TypeAlias = tuple[Limiter, float]
"""(limiter, amount recorded in the unit of its quota); a negative amount was given back."""


class RequestFilter(ABC):
    """A filter of one request and its response, made when the request's header has been read.

    It may throttle the client with `request.throttled`.
    """

    charges_refused = True
    """Whether a Produce that the filter responds to counts for the byte rate, as one that a broker refuses does."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        """The header of the gathered frame."""
        self._charges: list[Charge] = []

    @abstractmethod
    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        """Decide about the whole request.

        Raises:
            ProtocolError: The frame is no request of its API and version.
        """

    def on_response_to_own(  # noqa: B027 - most filters send no request
        self, frame: bytearray, request: InFlightRequest, now_ms: int
    ) -> Generator[None, None, None] | None:
        """Take the broker's response to the last `SendRequest`, at once or in slices."""

    def on_response(
        self, frame: bytearray, request: InFlightRequest, now_ms: int
    ) -> Buffer | Generator[None, None, Buffer]:
        """Return the response for the client, before the session rewrites addresses and the throttle time.

        Where many elements have to be read, it is a generator that yields between slices of a millisecond.
        """
        del request, now_ms
        return frame

    def charges(self) -> Sequence[Charge]:
        """Return the charges since the last call, for the event log."""
        charges, self._charges = self._charges, []
        return charges


class NotFiltered(Enum):
    """The reason why a factory makes no filter."""

    STREAMS = "it passes as it comes"
    NEED_MORE = "more of its bytes are needed to decide"


class FilterFactory(Protocol):
    """The choice, from a request's first bytes, whether one API's request is filtered.

    A session has one factory per filtered API (`Session(factories=...)`); connections may share them.
    """

    @property
    def is_active(self) -> bool:
        """Whether any request may need a filter at the moment.

        The session reads it for each request of the API, so it must be cheap.
        """
        ...

    def make_filter(
        self, request: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> RequestFilter | NotFiltered:
        """Return the filter of the request that starts at `header.start` of the chunk, or why it gets none.

        The chunk may hold only the first part of the request. `request.client` has the limiters and the policy of the
        client. What the client sends after a filtered request waits until its response has passed; the factory may
        reset `request.blocks_next` where no throttle time can come of the request.
        """
        ...


class ProduceProtection(FilterFactory):
    """A factory of Produce filters that needs to see which topic each request is for, and no more of most."""

    inner: FilterFactory | None
    """The factory of the other filters of the API."""

    @abstractmethod
    def harmless_until(self, chunk: memoryview, header: RequestHeader) -> int | None:
        """Return the end of the bytes that show that a Produce needs no check, None if they don't."""


MAX_TOPIC_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Longest request about topics that is gathered: about 10,000 topics of some 200 bytes each."""


def check_topic_request(header: RequestHeader) -> None:
    """Check that a request about topics is short enough to be gathered.

    Raises:
        ProtocolError: It is too long. Passed on, it would be a way around a quota.
    """
    if header.frame_length > MAX_TOPIC_REQUEST_BYTES:
        raise ProtocolError(
            f"a request of API {header.api_key} announces {header.frame_length} bytes, "
            f"{MAX_TOPIC_REQUEST_BYTES} are the limit where its topics count for a quota",
            hint="name fewer topics at a time",
        )


NO_FILTERS: Final[Mapping[int, FilterFactory]] = MappingProxyType({})
"""API key -> filter factory, without any."""

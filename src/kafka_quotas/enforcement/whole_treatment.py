"""What deals with whole requests and their responses, rather than with their first bytes.

A request that somebody treats is gathered. The treatment sees it when its last byte is there and says what becomes of
it: it goes on as it is or changed, it is answered here without the broker, or the broker is asked something first, on
the same connection and in front of it. No byte of the client behind the request passes before that is settled, and the
response is gathered and shown to the treatment before the client sees it.

No I/O and no clock, as in the session. Frames are whole, their length field included.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.wire.walk import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The request goes on to the broker, as this frame."""

    frame: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The request goes no further; this is its response, in its turn. None: a request that wants no response."""

    frame: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """This request of our own goes to the broker first; `on_told` gets its response, then `on_request` is called again.

    The response carries the correlation id of the treated request and never reaches the client.
    """

    frame: bytes


Verdict: TypeAlias = Pass | Answer | Ask


class WholeTreatment(Protocol):
    """Deals with one exchange; made when its header has been seen.

    It may raise `exchange.throttle_ms`, and names in `exchange.quota_type` and `exchange.limiter` whose quota that is.
    """

    def on_request(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Verdict:
        """What becomes of a request. Raises `ProtocolError` where it can't be what its header says."""
        ...

    def on_told(self, frame: bytearray, exchange: Exchange, now_ms: int) -> None:
        """Nothing; the broker answered what the last `Ask` asked."""
        ...

    def on_response(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Buffer:
        """The response as the client shall see it, but for addresses and the throttle time."""
        ...

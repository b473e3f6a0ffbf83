"""Something that deals with requests as a whole, as a test says."""

from dataclasses import dataclass, field

from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.whole_treatment import Pass, Unclaimed, Verdict, WholeTreatment
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import Buffer


@dataclass
class Treatment:
    """Does what a test says, and notes what it was shown."""

    verdicts: list[Verdict] = field(default_factory=list)
    throttle_ms: int = 0
    throttle_at_response_ms: int = 0
    answer: bytes | None = None
    shown: list[tuple[str, bytes]] = field(default_factory=list)

    def on_request(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Verdict:
        self.shown.append(("request", bytes(frame)))
        self._throttle(exchange, self.throttle_ms)
        return self.verdicts.pop(0) if self.verdicts else Pass(frame=frame)

    def on_told(self, frame: bytearray, exchange: Exchange, now_ms: int) -> None:
        self.shown.append(("told", bytes(frame)))

    def on_response(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Buffer:
        self.shown.append(("response", bytes(frame)))
        self._throttle(exchange, self.throttle_at_response_ms)
        return frame if self.answer is None else self.answer

    def charges(self) -> tuple[()]:
        return ()

    def _throttle(self, exchange: Exchange, throttle_ms: int) -> None:
        assert exchange.client is not None
        exchange.throttled(exchange.client.mutation, throttle_ms)


@dataclass
class ClaimAll:
    """Claims every request once its first `needed` bytes are there."""

    treatment: WholeTreatment | Unclaimed
    is_active: bool = True
    needed: int = 0

    def claim(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> WholeTreatment | Unclaimed:
        return self.treatment if len(chunk) - header.start >= self.needed else Unclaimed.NEED_MORE

"""Something that deals with requests as a whole, as a test says."""

from dataclasses import dataclass, field

from kafka_quotas.enforcement.session.filters import RequestFilter, Verdict
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.header import RequestHeader


@dataclass
class RecordingFilter(RequestFilter):
    """Does what a test says, and notes what it was shown."""

    verdicts: list[Verdict] = field(default_factory=list)
    throttle_ms: int = 0
    throttle_at_response_ms: int = 0
    answer: bytes | None = None
    shown: list[tuple[str, bytes]] = field(default_factory=list)

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        self.shown.append(("request", bytes(frame)))
        self._throttle(request, self.throttle_ms)
        return self.verdicts.pop(0) if self.verdicts else Verdict(frame)

    def on_response_to_own(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> None:
        self.shown.append(("told", bytes(frame)))

    def on_response(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Buffer:
        self.shown.append(("response", bytes(frame)))
        self._throttle(request, self.throttle_at_response_ms)
        return frame if self.answer is None else self.answer

    def charges(self) -> tuple[()]:
        return ()

    def _throttle(self, request: InFlightRequest, throttle_ms: int) -> None:
        assert request.client is not None
        request.throttled(request.client.mutation, throttle_ms)


@dataclass
class FilterAll:
    """Claims every request."""

    recording: RequestFilter | None
    is_active: bool = True

    def make_filter(self, request: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | None:
        return self.recording

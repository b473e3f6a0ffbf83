"""A session with its shortcuts for repeated Produce requests does what it does without them, however bytes are cut."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.frames.enforcement import (
    CLIENT_ID,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    set_limit,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import ClientPolicy, Mode, PolicyTable
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.session.filters import RequestFilter, Verdict
from kafka_quotas.enforcement.session.in_flight import PRODUCE, InFlightRequest
from kafka_quotas.wire.protocol.header import RequestHeader

WINDOW = QuotaWindow(samples=3, window_s=1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["produce"] * 8 + ["fetch", "other", "none", "odd", "limit", "terms", "claim"]),
        st.integers(100, 900),
        st.sampled_from([0, 0, 0, 1, 400, 2500]),
    ),
    min_size=1,
    max_size=25,
)
ANSWERED_BEHIND = [
    ("produce", 200, 1),
    ("produce", 201, 0),
    ("claim", 205, 0),
    ("produce", 200, 1),
    ("produce", 200, 1),
]
"""The fourth request is answered here while the two before it, which were plain, wait for the broker."""
OTHER_TERMS = [("produce", 200, 1), ("terms", 201, 1), ("produce", 200, 1)]
"""The client's bytes count elsewhere from the third request on."""


class EveryThird(RequestFilter):
    """Answers every third Produce here, without the broker, while it is active."""

    is_active = False

    def __init__(self) -> None:
        self._charges = []

    def make_filter(self, request: InFlightRequest, chunk: memoryview, header: RequestHeader) -> "EveryThird | None":
        request.blocks_next = False
        return None if header.correlation_id % 3 else self

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        return Verdict(None, produce_response(request.correlation_id, version=request.api_version))


class Side:
    """A connection and what was charged on it, with shortcuts or without."""

    def __init__(self, quotas: dict[QuotaType, float], mode: Mode, *, is_fast: bool, tells: bool) -> None:
        self.factory = EveryThird()
        self.charges: list[Charge] = []
        self.pair = Pair(
            quotas=quotas,
            mode=mode,
            factories={PRODUCE: self.factory},
            on_charge=self.charges.append if tells else None,
            is_fast=is_fast,
        )

    def change(self, kind: str, size: int) -> None:
        """Change limits or terms, or whether every third request is answered here."""
        if kind == "limit":
            set_limit(self.pair.broker, QuotaType.PRODUCE, Entity.of(client_id=CLIENT_ID), size)
        elif kind == "terms":
            policy = ClientPolicy(mode=Mode.SMOOTH if size % 2 else Mode.SHADOW)
            self.pair.broker.registry.policies = PolicyTable(default=policy)
            self.pair.broker.policies_changed()
        elif kind == "claim":
            self.factory.is_active = not self.factory.is_active

    def send(self, requests: bytes, cut: int) -> None:
        """Send these bytes of the client in pieces."""
        for at in range(0, len(requests), cut):
            self.pair.send(requests[at : at + cut])

    def answer(self, responses: dict[int, bytes], cut: int) -> None:
        """Send the broker's responses in pieces, each as soon as the request has reached it."""
        pair = self.pair
        while responses and (pair.session.state.in_flight or pair.session.state.wake_at_ms is not None):
            due = [each.correlation_id for each in pair.session.state.in_flight if each.local_response is None]
            data = b"".join(responses.pop(correlation_id) for correlation_id in due)
            for at in range(0, len(data), cut):
                pair.answer(data[at : at + cut])
            if not due:
                pair.advance(pair.session.state.wake_at_ms - pair.now_ms)

    def outcome(self) -> tuple[object, ...]:
        """All that can be seen of the connection."""
        session, ledger = self.pair.session, self.pair.throttle_stats
        counts = [
            {bucket: (count.times, count.total_ms) for (_, bucket), count in throttles.items()}
            for throttles in (ledger.set_here.by_bucket, ledger.set_upstream.by_bucket, ledger.shadowed_here.by_bucket)
        ]
        in_flight = [request.correlation_id for request in session.state.in_flight]
        held = (session.state.phase, session.state.is_delaying, session.state.wake_at_ms)
        rate = self.pair.broker.client("ANONYMOUS", CLIENT_ID).produce.peek(self.pair.now_ms)
        seen = (self.pair.upstream, self.pair.client, held, in_flight, session.state.request_count)
        return *seen, counts, rate, self.charges, self.pair.now_ms


def frames(kind: str, number: int, size: int, version: int) -> tuple[bytes, bytes]:
    """A request, and its response ("" where there is none)."""
    if kind == "fetch":
        return fetch(number), fetch_response(number, size=size)
    if kind == "other":
        return produce(number, size=size, version=version, client_id="x"), produce_response(number, version=version)
    if kind == "none":
        return produce(number, size=size, version=version, acks=0), b""
    throttle_ms = 700 if kind == "odd" else 0  # the broker throttles too
    response = produce_response(number, version=version, throttle_ms=throttle_ms)
    return produce(number, size=size, version=version), response


@settings(max_examples=150, deadline=None)
@given(
    steps=steps,
    cut=st.integers(1, 2000),
    limit=st.sampled_from([None, 300.0, 1e9]),
    version=st.sampled_from([0, 3, 7, 9]),
    mode=st.sampled_from([Mode.KAFKA, Mode.SHADOW]),
    tells=st.booleans(),
)
@example(steps=ANSWERED_BEHIND, cut=2000, limit=1e9, version=7, mode=Mode.KAFKA, tells=False)
@example(steps=OTHER_TERMS, cut=2000, limit=1e9, version=7, mode=Mode.KAFKA, tells=False)
def test_shortcuts_change_nothing(
    steps: list[tuple[str, int, int]], cut: int, limit: float | None, version: int, mode: Mode, tells: bool
) -> None:
    quotas = {} if limit is None else {QuotaType.PRODUCE: limit}
    sides = [Side(quotas, mode, is_fast=each, tells=tells) for each in (True, False)]
    requests, responses = b"", dict[int, bytes]()
    for number, (kind, size, pause_ms) in enumerate(steps):
        request, response = frames(kind, number, size, version)
        requests += request
        responses |= {number: response} if response else {}
        is_late = size % 5 == 0 and number < len(steps) - 1  # the broker answers with the next ones
        if pause_ms or kind in ("limit", "terms", "claim") or number == len(steps) - 1:
            for side in sides:
                side.send(requests, cut)
                if not is_late:
                    side.answer(dict(responses), cut)
                side.pair.advance(pause_ms)
                side.change(kind, size)
            requests, responses = b"", responses if is_late else {}
            assert sides[0].outcome() == sides[1].outcome()

"""A session with its shortcuts for repeated Produce requests does what it does without them, however bytes are cut."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.enforcement_frames import Pair, fetch, fetch_response, produce, produce_response

from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.rules import Rules
from kafka_quotas.enforcement.terms import Mode

WINDOW = QuotaWindow(samples=3, window_s=1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["produce"] * 6 + ["fetch", "other", "none", "odd"]),
        st.integers(100, 900),
        st.sampled_from([0, 0, 0, 1, 400, 2500]),
    ),
    min_size=1,
    max_size=25,
)


def outcome(pair: Pair) -> tuple[object, ...]:
    session = pair.session
    counts = {bucket: (count.times, count.total_ms) for (_, bucket), count in pair.ledger.throttles.items()}
    in_flight = [exchange.correlation_id for exchange in session.flow.in_flight]
    held = (session.request_holds, session.response_holds, session.wake_at_ms)
    return pair.upstream, pair.client, held, in_flight, session.request_count, counts


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
)
def test_shortcuts_change_nothing(
    steps: list[tuple[str, int, int]], cut: int, limit: float | None, version: int, mode: Mode
) -> None:
    quotas = {} if limit is None else {QuotaType.PRODUCE: limit}
    pairs = [Pair(quotas=quotas, rules=Rules(window=WINDOW, mode=mode), takes_shortcuts=each) for each in (True, False)]
    pairs[1].session._side._begin_again = lambda chunk, offset: None
    requests, responses = b"", list[bytes]()
    for number, (kind, size, pause_ms) in enumerate(steps):
        request, response = frames(kind, number, size, version)
        requests += request
        responses += [response] if response else []
        if pause_ms or number == len(steps) - 1:
            for pair in pairs:
                exchange(pair, requests, list(responses), cut)
                pair.advance(pause_ms)
            requests, responses = b"", []
            assert outcome(pairs[0]) == outcome(pairs[1])


def exchange(pair: Pair, requests: bytes, responses: list[bytes], cut: int) -> None:
    """Nothing; all bytes went through in pieces, answers as soon as their requests had reached the broker."""
    for at in range(0, len(requests), cut):
        pair.send(requests[at : at + cut])
    while responses:
        due = len(pair.session.flow.in_flight)
        if not due:
            assert pair.session.wake_at_ms is not None, "nothing is under way and nobody waits"
            pair.advance(pair.session.wake_at_ms - pair.now_ms)
            continue
        data = b"".join(responses[:due])
        del responses[:due]
        for at in range(0, len(data), cut):
            pair.answer(data[at : at + cut])

"""Whatever a client does, the throttle times that it is told are those of Kafka's managers, the larger of two.

A Fetch that is delivered although it is over the quota has no throttle time at a broker: it is told at most Kafka's.

The managers are held against Kafka's own figures by `tests/conformance`.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.frames.enforcement import (
    CLIENT_ID,
    START_MS,
    WINDOW,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
    response,
    throttle_of,
)

from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota

PRODUCE, FETCH, HEARTBEAT = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT
LIMITS = {
    QuotaType.PRODUCE: 3000.0,
    QuotaType.FETCH: 2000.0,
    QuotaType.REQUEST: 0.5,
    QuotaType.REQUEST_RATE: 2.0,
}
COSTS = CostModel(
    source="test",
    other=ApiCost(request_nanos=2_000_000),
    apis={
        PRODUCE: ApiCost(request_nanos=500_000, request_byte_nanos=300),
        FETCH: ApiCost(request_nanos=400_000, response_byte_nanos=200),
    },
)
steps = st.lists(
    st.tuples(st.sampled_from([PRODUCE, FETCH, HEARTBEAT]), st.integers(200, 9000), st.integers(0, 2500)), max_size=40
)


class Kafka:
    """What a broker's managers say to the same requests at the same times."""

    def __init__(self, limits: dict[QuotaType, float]) -> None:
        self.managers = {quota_type: ClientQuotaManager(quota_type, WINDOW) for quota_type in LIMITS}
        for quota_type, limit in limits.items():
            self.managers[quota_type].limits.update(Entity.of(client_id=CLIENT_ID), limit)

    def told_ms(self, api_key: int, asked: int, answered: int, now_ms: int, *, empties: bool) -> int:
        """The throttle time in the answer.

        Sizes are frames' in bytes, their length fields left out.
        """
        network = nanos_to_percentage(COSTS.response_nanos(api_key, answered))
        times = [self._record(QuotaType.REQUEST_RATE, 1, now_ms)]
        if api_key == FETCH:
            self._record_quietly(network, now_ms)
        times.append(self._record(QuotaType.REQUEST, self._io(api_key, asked), now_ms))
        if api_key == PRODUCE:
            times.append(self._record(QuotaType.PRODUCE, asked, now_ms))
        if api_key == FETCH:
            times.append(self._record(QuotaType.FETCH, answered, now_ms))
            if empties and max(times) > 0:
                self.managers[QuotaType.FETCH].record_without_throttle("ANONYMOUS", CLIENT_ID, -answered, now_ms)
        else:
            self._record_quietly(network, now_ms)
        return max(times)

    def _io(self, api_key: int, asked: int) -> float:
        return nanos_to_percentage(COSTS.request_nanos(api_key, asked))

    def _record(self, quota_type: QuotaType, amount: float, now_ms: int) -> int:
        return self.managers[quota_type].record_and_throttle_ms("ANONYMOUS", CLIENT_ID, amount, now_ms)

    def _record_quietly(self, amount: float, now_ms: int) -> None:
        if self.managers[QuotaType.REQUEST].enabled:
            self.managers[QuotaType.REQUEST].record_without_throttle("ANONYMOUS", CLIENT_ID, amount, now_ms)


def frames(api_key: int, number: int, size: int) -> tuple[bytes, bytes]:
    if api_key == PRODUCE:
        return produce(number, size=size), produce_response(number)
    if api_key == FETCH:
        return fetch(number, version=6), fetch_response(number, size=size, version=6)
    return request(HEARTBEAT, 2, number, bytes(size - 17)), response(number, bytes(6))


@settings(max_examples=150, deadline=None)
@given(steps, st.sets(st.sampled_from(list(LIMITS))), st.sampled_from(list(FetchOverQuota)))
def test_told_throttle_times_are_kafkas(
    taken: list[tuple[int, int, int]], limited: set[QuotaType], mode: FetchOverQuota
) -> None:
    limits = {quota_type: LIMITS[quota_type] for quota_type in limited}
    pair = Pair(quotas=limits, fetch_over_quota=mode, model=COSTS)
    kafka = Kafka(limits)
    for number, (api_key, size, pause_ms) in enumerate(taken):
        pair.advance(pause_ms)
        if pair.session.state.wake_at_ms is not None:
            pair.advance(pair.session.state.wake_at_ms - pair.now_ms)
        asked, answer = frames(api_key, number, size)
        passed = pair.send(asked)
        assert passed
        if api_key == FETCH and mode is FetchOverQuota.DELIVER:  # a broker returns no more than it is asked for
            most = int.from_bytes(passed[-9:-5], "big")
            answer = fetch_response(number, size=min(len(answer), most), version=6)
        told = throttle_of(pair.answer(answer), -4 if api_key == PRODUCE else 8)
        expected = kafka.told_ms(
            api_key, len(asked) - 4, len(answer) - 4, pair.now_ms, empties=mode is FetchOverQuota.KAFKA
        )
        if api_key == FETCH and mode is FetchOverQuota.DELIVER and QuotaType.FETCH in limited:
            assert told <= expected, (number, pair.now_ms - START_MS)
        else:
            assert told == expected, (number, pair.now_ms - START_MS)

"""The experiments of KIP-124 on a virtual clock: who floods a broker with requests is held to its share of thread time.

Clients here heed nothing that they are told: they send as soon as their bytes are taken.
"""

import heapq
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.support.frames.enforcement import CLIENT_ID, START_MS, Pair, fetch, fetch_response, request, response

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota

WINDOW = QuotaWindow()
SERVICE_MS = 5
"""How long the broker takes for one request."""
COST_MS = 10.0
"""What one request costs by the model."""
MODEL = CostModel(source="test", other=ApiCost(request_nanos=COST_MS * 1e6))
METADATA, JOIN_GROUP = ApiKey.METADATA, ApiKey.JOIN_GROUP


def poll(number: int) -> tuple[bytes, bytes]:
    """A fetch that does not wait, and finds nothing."""
    return fetch(number), fetch_response(number, size=40)


def refused_metadata(number: int) -> tuple[bytes, bytes]:
    """A request that the broker refuses: the topic's error code is 29, TOPIC_AUTHORIZATION_FAILED."""
    asked = request(METADATA, 4, number, struct.pack(">ih", 1, 1) + b"t\x01")
    answer = struct.pack(">iihiih", 0, 0, -1, 0, 1, 29) + struct.pack(">h", 1) + b"t\x00" + bytes(4)
    return asked, response(number, answer)


def join(number: int) -> tuple[bytes, bytes]:
    """A member that joins again and again."""
    return request(JOIN_GROUP, 5, number, b"\x00\x01g" + bytes(20)), response(
        number, struct.pack(">ih", 0, 79) + bytes(20)
    )


@dataclass
class Flood:
    """Clients of one id, each on a connection of its own, that send one request after the other."""

    round_trip: Callable[[int], tuple[bytes, bytes]]
    pairs: list[Pair]
    answered_ms: list[int] = field(default_factory=list)

    def used_ms_per_s(self, *, since_s: int, seconds: int) -> float:
        """The thread time by the model that was used per second, the first burst left out."""
        answered = sum(ms >= START_MS + 1000 * since_s for ms in self.answered_ms)
        return answered * COST_MS / (seconds - since_s)

    def run(self, seconds: int) -> None:
        """Note every answer's time in `answered_ms`."""
        due = [(START_MS, index, 0) for index in range(len(self.pairs))]
        while due:
            now_ms, index, number = heapq.heappop(due)
            if now_ms >= START_MS + 1000 * seconds:
                return
            pair = self.pairs[index]
            pair.advance(now_ms - pair.now_ms)
            asked, told = self.round_trip(number)
            assert pair.send(asked), "a client sends when its connection is read"
            pair.now_ms += SERVICE_MS
            assert pair.answer(told)
            self.answered_ms.append(pair.now_ms)
            wake_at_ms = pair.session.state.wake_at_ms
            heapq.heappush(due, (pair.now_ms if wake_at_ms is None else wake_at_ms, index, number + 1))


def flood(round_trip: Callable[[int], tuple[bytes, bytes]], *, connections: int, percentage: float) -> Flood:
    first = Pair(quotas={QuotaType.REQUEST: percentage}, window=WINDOW, model=MODEL)
    others = [Pair(rules=first.rules, broker=first.broker, model=MODEL) for _ in range(1, connections)]
    return Flood(round_trip, [first, *others])


@pytest.mark.parametrize("round_trip", [poll, refused_metadata, join])
@pytest.mark.parametrize(("connections", "percentage"), [(1, 1.0), (10, 20.0), (20, 20.0)])
def test_a_flood_gets_its_share_of_thread_time_and_no_more(
    round_trip: Callable[[int], tuple[bytes, bytes]], connections: int, percentage: float
) -> None:
    flooding = flood(round_trip, connections=connections, percentage=percentage)
    flooding.run(70)
    used_ms_per_s = flooding.used_ms_per_s(since_s=20, seconds=70)
    allowed_ms_per_s = max(percentage * 10, connections * COST_MS)  # KIP-124: max(quota, connections x one request)
    assert used_ms_per_s == pytest.approx(allowed_ms_per_s, rel=0.1)


def test_who_is_within_its_share_is_not_held_while_others_flood() -> None:
    flooding = flood(poll, connections=10, percentage=20.0)
    calm = Pair(broker=flooding.pairs[0].broker, model=MODEL)
    asked, told = (part.replace(CLIENT_ID.encode(), b"abc") for part in poll(7))
    flooding.run(20)
    calm.advance(20_000)
    assert calm.send(asked) == asked
    assert calm.answer(told) == told
    assert calm.session.state.mute is None


def test_a_consumer_that_polls_without_pause_is_contained_where_its_fetches_are_emptied_too() -> None:
    empties = FetchOverQuota.KAFKA
    polling = Flood(poll, [Pair(quotas={QuotaType.REQUEST: 1.0}, window=WINDOW, fetch_over_quota=empties, model=MODEL)])
    polling.run(70)
    assert polling.used_ms_per_s(since_s=20, seconds=70) == pytest.approx(10, rel=0.1)


def test_without_a_limit_nothing_is_timed() -> None:
    pair = Pair(model=MODEL)
    for number in range(1000):
        asked, told = poll(number)
        pair.exchange(asked, told)
    assert pair.session.state.mute is None
    assert pair.broker.manager(QuotaType.REQUEST).buckets(START_MS) == []

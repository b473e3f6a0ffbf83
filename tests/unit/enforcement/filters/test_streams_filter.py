"""Internal topics that a broker makes for a streams group count for its client's `controller_mutation_rate`."""

import dataclasses
import datetime as dt
from typing import Any

import pytest
from kio.static.primitive import i8, i32Timedelta
from tests.support.brokers.topic_broker import METADATA, TopicBroker, frames_in
from tests.support.frames import kio_samples
from tests.support.frames.enforcement import CLIENT_ID, Pair, throttle_of

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import AutoCreate
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.wire.proxying.topics import DETAIL_START, MAY_NOT_CREATE, topics_in_the_making

WINDOW = QuotaWindow(samples=3, window_s=1)
HEARTBEAT = kio_samples.request_frame(
    kio_samples.filled_request(ApiKey.STREAMS_GROUP_HEARTBEAT, 0), client_id=CLIENT_ID
)


def answer(*details: tuple[int, str]) -> bytes:
    """A heartbeat response with these statuses (code, detail)."""
    message: Any = kio_samples.filled_response(ApiKey.STREAMS_GROUP_HEARTBEAT, 0)
    (status, *_) = message.status
    statuses = tuple(dataclasses.replace(status, status_code=i8(code), status_detail=text) for code, text in details)
    none = i32Timedelta.parse(dt.timedelta())
    return kio_samples.response_frame(dataclasses.replace(message, status=statuses, throttle_time=none))


def missing(*names: str) -> bytes:
    return answer((5, "Assignment delayed"), (3, DETAIL_START + ", ".join(names)))


class Group:
    """A member of a streams group behind a session, in front of a broker with some topics."""

    def __init__(self, auto_create: AutoCreate = AutoCreate.COUNT, rate: float | None = 1.0) -> None:
        self.charges: list[Charge] = []
        quotas = {} if rate is None else {QuotaType.CONTROLLER_MUTATION: rate}
        self.pair = Pair(quotas=quotas, auto_create=auto_create, has_topics=True, on_charge=self.charges.append)
        self.broker = TopicBroker(auto_creates=False)

    def beat(self, response: bytes) -> bytes:
        """What the client gets for a heartbeat that the broker answers so."""
        before = len(self.pair.client)
        pending = self.pair.send(HEARTBEAT)
        while pending:
            seen = len(self.pair.upstream)
            for frame in frames_in(pending):
                is_heartbeat = frame[4:6] == ApiKey.STREAMS_GROUP_HEARTBEAT.to_bytes(2, "big")
                self.pair.answer(response if is_heartbeat else self.broker.answers(frame))
            pending = self.pair.upstream[seen:]
        return self.pair.client[before:]

    @property
    def charged(self) -> float:
        return sum(charge[5] for charge in self.charges)


def test_topics_in_the_making_are_charged_once_and_waited_for() -> None:
    group = Group()
    names = tuple(f"app-store-{n}-changelog" for n in range(5))
    got = group.beat(missing(*names))
    assert throttle_of(got, 9) == 2000, "5 of a burst of 3, at 1 per second"
    assert got[13:] == missing(*names)[13:]
    assert [charge[3:7] for charge in group.charges] == [
        (QuotaType.CONTROLLER_MUTATION, ApiKey.STREAMS_GROUP_HEARTBEAT, 1, 2000)
    ] * 5
    assert group.pair.session.state.mute is not None
    group.pair.advance(2000)
    assert throttle_of(group.beat(missing(*names)), 9) == 0, "they are the same topics"
    assert group.charged == 5


def test_their_partitions_count_as_soon_as_the_broker_knows_them() -> None:
    group = Group(rate=10.0)
    group.beat(missing("app-x-repartition", "app-store-changelog"))
    group.broker.topics["app-x-repartition"] = 12
    got = group.beat(missing("app-store-changelog"))
    assert group.broker.asked == [(METADATA, 4)]
    assert throttle_of(got, 9) == 0
    assert group.charged == 13
    group.broker.topics["app-store-changelog"] = 40
    group.beat(answer())
    group.beat(answer())
    assert group.charged == 52
    assert len(group.broker.asked) == 2, "what is settled is not asked for again"
    assert throttle_of(group.beat(missing("one-more")), 9) > 1000


def test_what_was_charged_stays_however_long_it_takes() -> None:
    group = Group(rate=10.0)
    group.beat(missing("slow"))
    group.pair.advance(3_600_000)
    group.broker.topics["slow"] = 7
    group.beat(answer())
    assert group.charged == 7


@pytest.mark.parametrize(
    "response",
    [
        answer(),
        answer((1, DETAIL_START + "a, b")),
        answer((3, "Something else: a, b")),
        answer((3, DETAIL_START + "a; " + MAY_NOT_CREATE + "a.")),
    ],
    ids=["no status", "another status", "another text", "may not create"],
)
def test_nothing_is_charged_where_nothing_is_made(response: bytes) -> None:
    group = Group()
    assert group.beat(response) == response
    assert group.charges == []


@pytest.mark.parametrize(
    ("auto_create", "rate"), [(AutoCreate.PASS, 1.0), (AutoCreate.COUNT, None)], ids=["passed", "no quota"]
)
def test_heartbeats_stream_where_nothing_counts(auto_create: AutoCreate, rate: float | None) -> None:
    group = Group(auto_create, rate)
    response = missing("a")
    assert group.beat(response) == response
    assert group.charges == []


def test_what_the_quota_says_about_failures_is_read_as_names_alone() -> None:
    detail = DETAIL_START + "a-changelog, b-repartition; Creation failed: a-changelog (The throttling quota, too)."
    assert topics_in_the_making(0, answer((3, detail))) == ("a-changelog", "b-repartition")

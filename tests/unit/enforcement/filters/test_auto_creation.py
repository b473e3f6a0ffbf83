"""Topics made by asking for them, held to `controller_mutation_rate` by a session, forbidden, or let pass."""

from typing import Any

import pytest
from tests.support.brokers.topic_broker import (
    CREATE_TOPICS,
    METADATA,
    TopicBroker,
)
from tests.support.frames.enforcement import request
from tests.support.frames.mutation_client import QUOTA_EXCEEDED, ask_for, client, codes, create

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.config.rules import AutoCreate


@pytest.mark.parametrize("version", [1, 4, 9, 13])
def test_topics_made_by_asking_for_them_are_charged_once_and_settled_when_they_exist(version: int) -> None:
    who = client(TopicBroker(default_partitions=4))
    assert codes(ask_for(who, version, "made")) == [("made", 3)]
    assert who.broker.topics == {"made": 4}
    assert who.pair.session.state.mute is None, "1 partition was thought, of a burst of 3"
    assert codes(ask_for(who, version, "made")) == [("made", 0)]
    assert codes(create(who, 7, ("next", 1))) == [("next", QUOTA_EXCEEDED)]
    assert who.pair.counters.mutation_partitions == 4


def test_a_client_that_makes_many_topics_by_asking_waits() -> None:
    who = client()
    response = ask_for(who, 9, *[f"t{number}" for number in range(10)])
    assert response.throttle_time_ms == 7000
    who.pair.advance(7000)
    again = ask_for(who, 9, *[f"t{number}" for number in range(10)])
    assert [code for _, code in codes(again)] == [0] * 10


def test_topics_that_never_appear_are_given_back_and_not_charged_again() -> None:
    who = client(TopicBroker(auto_creates=False))
    ask_for(who, 9, "never", "either", "neither")
    assert codes(create(who, 7, ("a", 1), ("b", 1))) == [("a", 0), ("b", QUOTA_EXCEEDED)]
    who.pair.advance(60_000)
    assert ask_for(who, 9, "never", "either", "neither").throttle_time_ms == 0
    assert codes(create(who, 7, ("d", 3), ("e", 1))) == [("d", 0), ("e", 0)]
    assert who.pair.counters.mutation_partitions == 5


@pytest.mark.parametrize("fields", [{"may_create": False}, {}])
def test_a_request_that_makes_nothing_costs_nothing(fields: dict[str, bool]) -> None:
    who = client(TopicBroker(topics={"there": 9}))
    for _ in range(10):
        ask_for(who, 9, "there" if not fields else "missing", **fields)
    assert codes(create(who, 7, ("a", 3))) == [("a", 0)]


@pytest.mark.parametrize("refused", [False, True])
def test_a_charge_for_naming_a_topic_is_given_back_in_the_log_unless_its_creation_is_refused(refused: bool) -> None:
    events: list[Any] = []
    who = client(TopicBroker(auto_creates=False, default_partitions=4), on_charge=events.append)
    ask_for(who, 9, "wanted")
    who.broker.refuses = {"wanted": 36} if refused else {}  # TOPIC_ALREADY_EXISTS: somebody else was faster
    create(who, 7, ("wanted", 2))
    amounts = [(api_key, amount) for _, _, _, _, api_key, amount, _, _ in events]
    assert amounts[:2] == [(3, 1), (19, 2)]
    assert amounts[2:] == [(19, -2) if refused else (19, -1)]
    who.broker.refuses = {}
    who.broker.topics["wanted"] = 4
    ask_for(who, 9, "wanted")
    assert who.pair.counters.mutation_partitions == (4 if refused else 2), "somebody paid for it, once"


def test_a_topic_that_is_created_while_somebody_waits_for_it_is_charged_to_its_creator_alone() -> None:
    who = client(TopicBroker(auto_creates=False), rate=100.0)
    ask_for(who, 9, "wanted")
    create(who, 7, ("wanted", 30))
    ask_for(who, 9, "wanted")
    assert who.pair.counters.mutation_partitions == 30


def test_a_topic_that_somebody_else_made_says_nothing_of_the_default_number_of_partitions() -> None:
    events: list[Any] = []
    who = client(TopicBroker(auto_creates=False, default_partitions=2), rate=100.0, on_charge=events.append)
    ask_for(who, 9, "wanted")
    who.broker.topics["wanted"] = 50
    ask_for(who, 9, "wanted")
    events.clear()
    create(who, 7, ("own", -1))
    create(who, 7, ("next", -1))
    amounts = [amount for _, _, _, _, api_key, amount, _, _ in events if api_key == CREATE_TOPICS]
    assert amounts == [1, 1, 2], "one partition was thought of the first topic, and the broker made two"


@pytest.mark.parametrize("version", [4, 9, 13])
def test_forbidden_topics_are_not_made(version: int) -> None:
    who = client(auto_create=AutoCreate.FORBID, rate=None)
    assert codes(ask_for(who, version, "missing")) == [("missing", 3)]
    assert who.broker.topics == {}
    assert who.broker.asked == [(METADATA, version)]


@pytest.mark.parametrize("version", range(4))
def test_forbidden_topics_are_cut_out_of_requests_that_can_not_say_so(version: int) -> None:
    who = client(TopicBroker(topics={"there": 2}), auto_create=AutoCreate.FORBID, rate=None)
    assert codes(ask_for(who, version, "missing", "there")) == [("missing", 3), ("there", 0)]
    assert codes(ask_for(who, version, "missing")) == [("missing", 3)]
    assert codes(ask_for(who, version, "there")) == [("there", 0)]
    assert who.broker.topics == {"there": 2}


def test_passed_topics_are_made_and_cost_nothing() -> None:
    who = client(auto_create=AutoCreate.PASS)
    ask_for(who, 9, *[f"t{number}" for number in range(10)])
    assert len(who.broker.topics) == 10
    assert codes(create(who, 7, ("a", 3))) == [("a", 0)]


def metadata_of(count: int, *, name_bytes: int = 0) -> bytes:
    """A Metadata request of version 1 that names so many topics.

    Empty names, or zeros.
    """
    name = name_bytes.to_bytes(2, "big") + bytes(name_bytes)
    return request(METADATA, 1, 1, count.to_bytes(4, "big") + name * count)


def test_a_request_that_names_a_million_topics_is_refused_before_it_is_read() -> None:
    for frame in (metadata_of(10_001), metadata_of(1_000_000), metadata_of(9_000, name_bytes=249)):
        who = client()
        with pytest.raises(ProtocolError, match=r"10000 may be|2097152 are the limit"):
            who.pair.send(frame)
        assert who.pair.upstream == b""
    who = client()
    who.pair.send(metadata_of(10_000))
    assert who.pair.upstream == metadata_of(10_000)


def test_where_nothing_counts_a_long_request_passes_unread() -> None:
    who = client(rate=None)
    assert who.pair.send(metadata_of(1_000_000)) == metadata_of(1_000_000)


def test_topics_beyond_the_most_that_may_be_named_are_not_created() -> None:
    who = client()
    topic = b"\x00\x01t" + (1).to_bytes(4, "big") + (1).to_bytes(2, "big") + bytes(8)
    with pytest.raises(ProtocolError, match="10001 elements where 10000 may be"):
        who.pair.send(request(CREATE_TOPICS, 2, 1, (10_001).to_bytes(4, "big") + topic * 10_001 + bytes(5)))
    assert who.pair.upstream == b""

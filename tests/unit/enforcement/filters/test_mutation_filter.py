"""Topics that are created, grown, deleted, or made by asking for them, held to `controller_mutation_rate`."""

from typing import Any

import pytest
from tests.support.brokers.topic_broker import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    Client,
    TopicBroker,
    request_of,
    topic_id,
)
from tests.support.frames.enforcement import CLIENT_ID, request, set_limit
from tests.support.frames.mutation_client import QUOTA_EXCEEDED, ask_for, client, codes, create, new_topic

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.rules import AutoCreate, MutationMode

THREE = (("a", 4), ("b", 1), ("c", 1))


@pytest.mark.parametrize("version", [6, 7])
def test_topics_over_the_quota_are_refused_and_the_others_made_in_order(version: int) -> None:
    who = client()
    response = create(who, version, *THREE)
    assert codes(response) == [("a", 0), ("b", QUOTA_EXCEEDED), ("c", QUOTA_EXCEEDED)]
    assert who.broker.topics == {"a": 4}
    assert response.throttle_time_ms == 1000, "4 of a burst of 3, at 1 per second"
    assert response.topics[1].error_message == (
        "controller_mutation_rate of client-id app is exceeded (1 partitions/s): wait 1000 ms"
    )
    assert who.pair.session.state.mute is not None
    assert (who.pair.counters.mutation_partitions, who.pair.counters.mutation_refusals) == (4, 2)


@pytest.mark.parametrize("version", range(2, 6))
def test_older_versions_are_admitted_and_wait(version: int) -> None:
    who = client()
    response = create(who, version, *THREE)
    assert codes(response) == [("a", 0), ("b", 0), ("c", 0)]
    assert response.throttle_time_ms == 3000
    assert who.broker.topics == {"a": 4, "b": 1, "c": 1}


def test_a_version_without_a_throttle_time_waits_all_the_same() -> None:
    who = client()
    assert codes(create(who, 0, *THREE)) == [("a", 0), ("b", 0), ("c", 0)]
    assert who.pair.session.state.mute is not None
    assert who.pair.session.state.mute.until_ms == who.pair.now_ms + 3000


@pytest.mark.parametrize(
    ("mode", "version", "refused"),
    [
        (MutationMode.STRICT, 4, True),
        (MutationMode.PERMISSIVE, 7, False),
        (MutationMode.AUTO, 5, False),
        (MutationMode.AUTO, 6, True),
    ],
)
def test_the_mode_can_be_forced(mode: MutationMode, version: int, refused: bool) -> None:
    who = client(mode=mode)
    response = create(who, version, *THREE)
    assert (response.topics[1].error_code == QUOTA_EXCEEDED) is refused


def test_an_admitted_topic_succeeds_wherever_it_stands_and_the_wait_ends_when_told() -> None:
    who = client()
    create(who, 7, ("first", 4))
    who.pair.advance(500)
    assert codes(create(who, 7, ("too early", 1), ("as well", 1))) == [("too early", 89), ("as well", 89)]
    assert [key for key, _ in who.broker.asked[-1:]] == [METADATA], "nothing was left to pass on"
    who.pair.advance(500)
    assert codes(create(who, 7, ("now", 1))) == [("now", 0)]


def test_looking_only_is_free() -> None:
    who = client()
    for _ in range(5):
        assert codes(create(who, 7, *THREE, validate_only=True)) == [("a", 0), ("b", 0), ("c", 0)]
    assert (CREATE_TOPICS, 7) in who.broker.asked
    assert (METADATA, 4) not in who.broker.asked


def test_topics_that_exist_or_are_named_twice_or_have_no_partitions_cost_nothing() -> None:
    who = client(TopicBroker(topics={"old": 9}))
    response = create(who, 7, ("old", 50), ("twice", 50), ("none", 0), ("twice", 50), ("new", 1))
    assert [result.error_code for result in response.topics if result.name in ("old", "new")] == [36, 0]
    assert who.pair.session.state.mute is None
    assert codes(create(who, 7, ("second", 3))) == [("second", 0)]


def test_manual_assignments_count_by_their_number() -> None:
    who = client()
    wanted = [new_topic(7, "a", assigned=4), new_topic(7, "b")]
    response = who.ask(CREATE_TOPICS, 7, topics=wanted, timeout_ms=1000, validate_only=False)
    assert codes(response) == [("a", 0), ("b", QUOTA_EXCEEDED)]
    assert response.throttle_time_ms == 1000


def test_the_default_number_of_partitions_is_learnt_from_the_response() -> None:
    who = client(TopicBroker(default_partitions=5))
    response = create(who, 7, ("a", -1))
    assert codes(response) == [("a", 0)]
    assert codes(create(who, 7, ("b", -1))) == [("b", QUOTA_EXCEEDED)], "5 were charged in the end, not 1"
    who.pair.advance(5000)
    assert codes(create(who, 7, ("c", -1), ("d", -1))) == [("c", 0), ("d", QUOTA_EXCEEDED)]


def test_what_the_broker_refuses_costs_nothing() -> None:
    who = client(TopicBroker(refuses={"bad": 41}))
    assert codes(create(who, 7, ("bad", 500))) == [("bad", 41)]
    assert codes(create(who, 7, ("good", 3))) == [("good", 0)]
    timed_out = client(TopicBroker(refuses={"slow": 7}))
    create(timed_out, 7, ("slow", 500))
    assert codes(create(timed_out, 7, ("next", 1))) == [("next", QUOTA_EXCEEDED)], "it is being made all the same"


def grow(who: Client, version: int, *topics: tuple[str, int]) -> Any:
    kind = request_of(CREATE_PARTITIONS, version).CreatePartitionsTopic
    wanted = [kind(version=version, name=name, count=count, assignments=None) for name, count in topics]
    return who.ask(CREATE_PARTITIONS, version, topics=wanted, timeout_ms=1000, validate_only=False)


@pytest.mark.parametrize(("version", "refused"), [(0, False), (2, False), (3, True)])
def test_topics_that_grow_cost_what_they_gain(version: int, refused: bool) -> None:
    who = client(TopicBroker(topics={"a": 10, "b": 10}))
    response = grow(who, version, ("unknown", 99), ("a", 14), ("b", 11))
    last = QUOTA_EXCEEDED if refused else 0
    assert codes(response, "results") == [("unknown", 3), ("a", 0), ("b", last)]
    assert response.throttle_time_ms == (1000 if refused else 2000)
    assert who.broker.topics == {"a": 14, "b": 10 if refused else 11}


@pytest.mark.parametrize(("version", "refused"), [(1, False), (4, False), (5, True)])
def test_topics_that_are_deleted_cost_what_they_have(version: int, refused: bool) -> None:
    who = client(TopicBroker(topics={"a": 4, "b": 2}))
    response = who.ask(DELETE_TOPICS, version, topic_names=["unknown", "a", "b"], timeout_ms=1000)
    last = QUOTA_EXCEEDED if refused else 0
    assert codes(response, "responses") == [("unknown", 3), ("a", 0), ("b", last)]
    assert response.throttle_time_ms == (1000 if refused else 3000)
    assert who.broker.topics == ({"b": 2} if refused else {})


def test_topics_are_deleted_by_id_as_well() -> None:
    who = client(TopicBroker(topics={"a": 4, "b": 2, "c": 1}))
    kind = request_of(DELETE_TOPICS, 6).DeleteTopicState
    wanted = [
        kind(version=6, name=None, topic_id=topic_id("a")),
        kind(version=6, name="b", topic_id=topic_id("")),
        kind(version=6, name=None, topic_id=topic_id("c")),
    ]
    wanted[1].topic_id = request_of(DELETE_TOPICS, 6).DeleteTopicState(version=6).topic_id
    response = who.ask(DELETE_TOPICS, 6, topics=wanted, timeout_ms=1000)
    assert [result.error_code for result in response.responses] == [0, QUOTA_EXCEEDED, QUOTA_EXCEEDED]
    assert response.responses[2].topic_id == topic_id("c")
    assert set(who.broker.topics) == {"b", "c"}


def test_the_larger_throttle_time_of_broker_and_daemon_counts() -> None:
    who = client(TopicBroker(throttle_ms=5000))
    assert create(who, 7, *THREE).throttle_time_ms == 5000
    assert who.pair.session.state.mute is not None
    assert who.pair.session.state.mute.until_ms == who.pair.now_ms + 5000


def test_the_event_log_gets_what_was_charged_and_what_was_given_back() -> None:
    events: list[Any] = []
    who = client(TopicBroker(refuses={"bad": 41}, default_partitions=4), on_charge=events.append)
    create(who, 7, ("bad", 2), ("good", 1))
    ask_for(who, 9, "made")
    ask_for(who, 9, "made")
    told = [(kind, api_key, amount) for _, _, _, kind, api_key, amount, _, _ in events]
    kind = QuotaType.CONTROLLER_MUTATION
    assert told == [(kind, 19, 2), (kind, 19, 1), (kind, 19, -2), (kind, 3, 1), (kind, 3, 3)]
    assert {event[2] for event in events} == {CLIENT_ID}


def test_a_client_without_such_a_quota_is_let_through_untouched() -> None:
    who = client(rate=None)
    set_limit(who.pair.broker, QuotaType.CONTROLLER_MUTATION, Entity.of(user="somebody else"), 1.0)
    assert codes(create(who, 7, ("a", 500), ("b", 500))) == [("a", 0), ("b", 0)]
    assert who.broker.asked == [(CREATE_TOPICS, 7)]


def test_in_shadow_mode_nothing_is_refused_and_nobody_waits() -> None:
    who = client(terms=Mode.SHADOW)
    response = create(who, 7, *THREE)
    assert [code for _, code in codes(response)] == [0, 0, 0]
    assert response.throttle_time_ms == 0
    ((quota_type, _),) = who.pair.throttle_stats.shadowed_here.by_bucket
    assert quota_type is QuotaType.CONTROLLER_MUTATION


def test_a_version_that_nobody_can_read_is_no_way_around_the_quota() -> None:
    who = client()
    with pytest.raises(ProtocolError, match="version 99"):
        who.pair.send(bytes.fromhex("00000011 0013 0063 00000001 0003 617070 00 00 00 00"))


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

"""No client changes the topic of the daemons' fleet, whatever it sends, and all else passes as without a fleet."""

import struct
import uuid

import pytest
from tests.support.brokers.topic_broker import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    PRODUCE,
    Client,
    TopicBroker,
    frame_of,
    request_of,
    topic_id,
)
from tests.support.frames.enforcement import Pair

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.enforcement.config.client_policy import OnViolation
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.filters.topic_filters import CHANGING, ProtectedTopic
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.wire.codec.skip import encode_unsigned_varint
from kafka_quotas.wire.proxying.broker_addresses import lengthened_varint

FLEET = "quota-fleet"
NOT_ALLOWED, UNKNOWN, UNKNOWN_ID = 29, 3, 100
LONGER = f"my-{FLEET}-2"
HARMLESS = """
    FETCH LIST_OFFSETS METADATA OFFSET_COMMIT OFFSET_FETCH FIND_COORDINATOR JOIN_GROUP HEARTBEAT LEAVE_GROUP SYNC_GROUP
    DESCRIBE_GROUPS LIST_GROUPS SASL_HANDSHAKE API_VERSIONS INIT_PRODUCER_ID OFFSET_FOR_LEADER_EPOCH ADD_OFFSETS_TO_TXN
    END_TXN TXN_OFFSET_COMMIT DESCRIBE_ACLS DESCRIBE_CONFIGS DESCRIBE_LOG_DIRS SASL_AUTHENTICATE
    CREATE_DELEGATION_TOKEN RENEW_DELEGATION_TOKEN EXPIRE_DELEGATION_TOKEN DESCRIBE_DELEGATION_TOKEN DELETE_GROUPS
    LIST_PARTITION_REASSIGNMENTS OFFSET_DELETE DESCRIBE_CLIENT_QUOTAS ALTER_CLIENT_QUOTAS
    DESCRIBE_USER_SCRAM_CREDENTIALS DESCRIBE_QUORUM DESCRIBE_CLUSTER DESCRIBE_PRODUCERS DESCRIBE_TRANSACTIONS
    LIST_TRANSACTIONS CONSUMER_GROUP_HEARTBEAT CONSUMER_GROUP_DESCRIBE GET_TELEMETRY_SUBSCRIPTIONS PUSH_TELEMETRY
    LIST_CONFIG_RESOURCES DESCRIBE_TOPIC_PARTITIONS SHARE_GROUP_HEARTBEAT SHARE_GROUP_DESCRIBE SHARE_FETCH
    SHARE_ACKNOWLEDGE STREAMS_GROUP_HEARTBEAT STREAMS_GROUP_DESCRIBE DESCRIBE_SHARE_GROUP_OFFSETS
    ALTER_SHARE_GROUP_OFFSETS DELETE_SHARE_GROUP_OFFSETS
    LEADER_AND_ISR STOP_REPLICA UPDATE_METADATA CONTROLLED_SHUTDOWN WRITE_TXN_MARKERS VOTE BEGIN_QUORUM_EPOCH
    END_QUORUM_EPOCH ALTER_PARTITION ENVELOPE FETCH_SNAPSHOT BROKER_REGISTRATION BROKER_HEARTBEAT UNREGISTER_BROKER
    ALLOCATE_PRODUCER_IDS CONTROLLER_REGISTRATION ASSIGN_REPLICAS_TO_DIRS ADD_RAFT_VOTER REMOVE_RAFT_VOTER
    UPDATE_RAFT_VOTER INITIALIZE_SHARE_GROUP_STATE READ_SHARE_GROUP_STATE WRITE_SHARE_GROUP_STATE
    DELETE_SHARE_GROUP_STATE READ_SHARE_GROUP_STATE_SUMMARY
    CREATE_ACLS DELETE_ACLS ALTER_USER_SCRAM_CREDENTIALS UPDATE_FEATURES
"""
"""Those that read, those that only brokers may send, and at the end those that need Alter on the whole cluster."""


class Anybody(Client):
    """A client of a member of the fleet whose topic is on the cluster behind it."""

    def __init__(self, *, on_violation: OnViolation = OnViolation.DELAY, fleet_topic: str | None = FLEET) -> None:
        rules = EnforcementRules(fleet_topic=fleet_topic, on_violation=on_violation)
        pair = Pair(rules=rules, has_topics=True)
        self.counters, self.events = pair.counters, pair.notices
        super().__init__(pair, TopicBroker(topics={FLEET: 1, "other": 1, LONGER: 1}))

    def codes(self, version: int, *topics: str, acks: int = 1) -> list[int] | None:
        """The error code of each topic that is produced to, in order."""
        data = ((name, 0, b"x" * 50) for name in topics)
        results = self.produce(version, *data, acks=acks, transactional_id="t")
        return None if results is None else [code for *_, code in results]

    @property
    def taken(self) -> list[str]:
        return [name for name, _, _ in self.broker.taken]


@pytest.mark.parametrize("version", range(14))
def test_nothing_is_produced_to_it(version: int) -> None:
    who = Anybody()
    for topics in ((FLEET,), ("other", FLEET), (FLEET, "other")):
        assert who.codes(version, *topics) == [NOT_ALLOWED] * len(topics)
    assert who.taken == []
    for _ in range(3):
        assert who.codes(version, "other") == [0]
    assert who.codes(version, "other", LONGER) == [0, 0]
    assert who.codes(version, FLEET) == [NOT_ALLOWED], "after requests of another topic that start alike"
    assert who.taken == ["other"] * 3 + ["other", LONGER]
    assert who.counters.fleet_topic_refusals == 4
    assert [event.event for event in who.events] == ["a client may not change the fleet's topic"]


@pytest.mark.parametrize("version", [0, 9, 13])
def test_nothing_is_produced_to_it_without_acknowledgement(version: int) -> None:
    who = Anybody()
    assert who.codes(version, FLEET, acks=0) is None
    assert who.codes(version, "other", acks=0) is None
    assert who.taken == ["other"]


def test_clients_that_get_errors_are_no_exception() -> None:
    who = Anybody(on_violation=OnViolation.ERROR)
    assert who.codes(9, FLEET) == [NOT_ALLOWED]
    assert who.codes(9, "other", LONGER) == [0, 0]
    assert who.taken == ["other", LONGER]


def test_an_id_is_looked_up_once() -> None:
    who = Anybody()
    for _ in range(3):
        who.codes(13, "other")
        who.codes(13, FLEET)
    assert [key for key, _ in who.broker.asked].count(METADATA) == 2


def test_requests_for_another_topic_that_start_alike_are_not_parsed_again() -> None:
    who = Anybody()
    for _ in range(3):
        assert who.codes(9, "other") == [0]
    template = who.pair.session._requests.last
    assert template is not None
    assert who.codes(9, "other") == [0]
    assert who.pair.session._requests.last is template
    assert who.codes(9, "other", LONGER) == [0, 0]
    assert who.pair.session._requests.last is None, "it shows the first of its topics only"


def test_a_name_that_comes_in_two_reads_is_seen() -> None:
    who = Anybody()
    kind = request_of(PRODUCE, 9).TopicProduceData
    part = kind.PartitionProduceData(version=9, index=0, records=b"x")
    data = [kind(version=9, name=FLEET, partition_data=[part])]
    message = request_of(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=1, topic_data=data)
    whole = frame_of(message, 5)
    at = whole.index(FLEET.encode()) + 3
    assert not who.pair.send(whole[:at])
    assert not who.pair.send(whole[at:])
    assert who.counters.fleet_topic_refusals == 1


@pytest.mark.parametrize("version", range(7))
def test_it_is_not_deleted(version: int) -> None:
    who = Anybody()
    if version < 6:
        response = who.ask(DELETE_TOPICS, version, topic_names=[FLEET, LONGER], timeout_ms=1000)
        named = [(each.name, each.error_code) for each in response.responses]
        assert sorted(named) == sorted([(FLEET, UNKNOWN), (LONGER, 0)])
    else:
        state = request_of(DELETE_TOPICS, version).DeleteTopicState
        by_id = [state(version=version, name=None, topic_id=topic_id(name)) for name in (FLEET, LONGER)]
        response = who.ask(DELETE_TOPICS, version, topics=by_id, timeout_ms=1000)
        first = response.responses[0]
        assert (first.topic_id, first.error_code) == (topic_id(FLEET), UNKNOWN_ID)
        assert (
            who.ask(
                DELETE_TOPICS,
                version,
                topics=[state(version=version, name=FLEET, topic_id=uuid.UUID(int=0))],
                timeout_ms=1000,
            )
            .responses[0]
            .error_code
        )
    assert FLEET in who.broker.topics
    assert LONGER not in who.broker.topics
    assert who.counters.fleet_topic_refusals >= 1


@pytest.mark.parametrize("length", [1, 11, 44, 45, 46, 47, 64, 126, 127, 128, 200, 249])
def test_its_name_is_found_in_every_encoding_and_nowhere_else(length: int) -> None:
    name = "f" * length
    topic = ProtectedTopic(name, counters=Counters(), notify=lambda _: None)
    forms = [(False, struct.pack(">h", length))]
    forms += [(True, lengthened_varint(length + 1, size)) for size in range(1 if length < 127 else 2, 6)]
    for is_compact, before in forms:
        frame = bytearray(b"head" + before + name.encode() + b"tail")
        assert topic.hide(frame, 4, is_compact=is_compact)
        assert frame == b"head" + before + b"!" + name.encode()[1:] + b"tail"
    # From 44 characters on, the length of a name is a character that another name may have before it.
    for other in (f"{name}2", f"x{name}", f"my-{name}-2") if length < 44 else (f"{name}2",):
        for is_compact, before in (
            (True, encode_unsigned_varint(len(other) + 1)),
            (False, struct.pack(">h", len(other))),
        ):
            frame = bytearray(before + other.encode())
            assert not topic.hide(frame, 0, is_compact=is_compact)
            assert frame == before + other.encode()


@pytest.mark.parametrize("key", sorted(ApiKey))
def test_every_api_is_one_that_changes_a_named_topic_or_one_that_does_not(key: ApiKey) -> None:
    """An API of a new Kafka release has to be put into one of the two."""
    assert (key in CHANGING) != (key.name in HARMLESS.split())


def test_partitions_are_not_added_and_it_is_not_created() -> None:
    who = Anybody()
    grown = request_of(CREATE_PARTITIONS, 3).CreatePartitionsTopic
    response = who.ask(
        CREATE_PARTITIONS,
        3,
        topics=[grown(version=3, name=FLEET, count=9, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    assert [(each.name, each.error_code) for each in response.results] == [(FLEET, UNKNOWN)]
    assert who.broker.topics[FLEET] == 1
    del who.broker.topics[FLEET]
    made = request_of(CREATE_TOPICS, 7).CreatableTopic
    who.ask(
        CREATE_TOPICS,
        7,
        topics=[made(version=7, name=FLEET, num_partitions=1, replication_factor=1, assignments=[], configs=[])],
        timeout_ms=1000,
        validate_only=False,
    )
    assert FLEET not in who.broker.topics


def test_without_a_fleet_it_is_a_topic_like_any_other() -> None:
    who = Anybody(fleet_topic=None)
    assert who.codes(9, FLEET) == [0]
    assert who.counters.fleet_topic_refusals == 0

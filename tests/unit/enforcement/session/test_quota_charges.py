"""Every API of the table goes through a session: what is charged there is what the table says, and nothing else."""

import dataclasses
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType
from tests.support.brokers.topic_broker import METADATA, TopicBroker, frame_of, frames_in, request_of
from tests.support.frames import kio_samples
from tests.support.frames.enforcement import CLIENT_ID, Pair, fetch, produce, request

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, ApiCharges, Mutation, RequestTime, charges_of
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.proxying.topics import DETAIL_START

WINDOW = QuotaWindow(samples=3, window_s=1)
KAFKAS_OWN = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
CREATE_TOPICS, DELETE_TOPICS = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS
CREATE_PARTITIONS, HEARTBEAT = ApiKey.CREATE_PARTITIONS, ApiKey.HEARTBEAT
TOPIC_APIS = (METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
NEWEST = dict(kio_samples.versions_of(EntityType.request))
CORRELATION_ID = 77
CLIENTS_MAY_SEND = [key for key in QUOTA_CHARGES if not API_TABLE[key].is_internal]


class Walk:
    """A client with a limit of every type that Kafka has, behind a session that lets it in already."""

    def __init__(self, *, internal: bool = False) -> None:
        principals = frozenset({"ANONYMOUS"}) if internal else frozenset[str]()
        self._charges: list[Charge] = []
        self.pair = Pair(
            quotas=dict.fromkeys(KAFKAS_OWN, 1e9),
            internal_principals=principals,
            has_topics=True,
            on_charge=self._charges.append,
        )
        self._broker = TopicBroker(topics={"there": 2})
        self.ask(heartbeat())

    def ask(self, frame: bytes) -> dict[QuotaType, bool]:
        """The quota types that a request was charged with, and whether it was exempt from each."""
        self._charges.clear()
        pending = self.pair.send(frame)
        while pending:
            seen = len(self.pair.upstream)
            for asked in frames_in(pending):
                self.pair.answer(self._answer(asked))
            pending = self.pair.upstream[seen:]
        return {charge[3]: charge[7] for charge in self._charges}

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key in TOPIC_APIS:
            return self._broker.answers(frame)
        if key not in NEWEST or not len(self.pair.session.state.in_flight):
            return b""
        message: Any = kio_samples.empty_response(key, version)
        if hasattr(message, "error_code"):
            message = dataclasses.replace(message, error_code=ErrorCode.none)
        if key == ApiKey.STREAMS_GROUP_HEARTBEAT:
            (status, *_) = kio_samples.filled_response(key, version).status  # type: ignore[attr-defined]
            making = dataclasses.replace(status, status_code=3, status_detail=DETAIL_START + "app-store-changelog")
            message = dataclasses.replace(message, status=(making,))
        return kio_samples.response_frame(message, correlation_id=correlation_id)


def heartbeat() -> bytes:
    message = kio_samples.filled_request(HEARTBEAT, NEWEST[HEARTBEAT])
    return kio_samples.request_frame(message, client_id=CLIENT_ID, correlation_id=1)


def topic_request(key: int) -> bytes:
    """A request that creates, grows, deletes or names topics, such that each of these changes something."""
    version = {METADATA: 4, CREATE_TOPICS: 6, DELETE_TOPICS: 4, CREATE_PARTITIONS: 2}[key]
    made = request_of(key, version)
    fields: dict[str, Any] = {"timeout_ms": 1000}
    if key == METADATA:
        fields = {"topics": [made.MetadataRequestTopic(version=version, name="new")], "allow_auto_topic_creation": True}
    elif key == DELETE_TOPICS:
        fields |= {"topic_names": ["there"]}
    elif key == CREATE_TOPICS:
        topic = made.CreatableTopic(
            version=version, name="new", num_partitions=3, replication_factor=1, assignments=[], configs=[]
        )
        fields |= {"topics": [topic], "validate_only": False}
    else:
        topic = made.CreatePartitionsTopic(version=version, name="there", count=5, assignments=None)
        fields |= {"topics": [topic], "validate_only": False}
    return frame_of(request_of(key, version, **fields), CORRELATION_ID)


def request_frame(key: int) -> bytes:
    """A request of an API that does what it can be charged for."""
    if key in TOPIC_APIS:
        return topic_request(key)
    if key not in NEWEST:
        return request(key, 1, CORRELATION_ID, b"")
    message: Any = kio_samples.filled_request(key, NEWEST[key])
    return kio_samples.request_frame(message, client_id=CLIENT_ID, correlation_id=CORRELATION_ID)


def expected(row: ApiCharges) -> set[QuotaType]:
    """The quota types of a row."""
    types = set() if row.byte_rate is None else {row.byte_rate}
    if row.request_time is not RequestTime.NOT_SERVED:
        types.add(QuotaType.REQUEST)
    return types if row.mutation is Mutation.NONE else types | {QuotaType.CONTROLLER_MUTATION}


@pytest.mark.parametrize("key", CLIENTS_MAY_SEND)
def test_a_session_charges_what_the_table_says(key: int) -> None:
    charged = Walk().ask(request_frame(key))
    assert set(charged) == expected(QUOTA_CHARGES[key])
    assert not any(charged.values()), "who is nobody special is exempt from nothing"


@pytest.mark.parametrize("key", CLIENTS_MAY_SEND)
def test_what_only_brokers_ask_is_exempt_for_internal_principals(key: int) -> None:
    row = QUOTA_CHARGES[key]
    charged = Walk(internal=True).ask(request_frame(key))
    exempt = {quota_type for quota_type, is_exempt in charged.items() if is_exempt}
    is_replica = row.request_time is RequestTime.UNLESS_REPLICA  # filled requests name one
    assert exempt == ({QuotaType.REQUEST} if row.request_time is RequestTime.UNLESS_BROKER or is_replica else set())


def test_an_unanswered_produce_is_exempt() -> None:
    assert charges_of(0).request_time is RequestTime.UNLESS_UNANSWERED
    assert Walk().ask(produce(2, acks=0)) == {QuotaType.PRODUCE: False, QuotaType.REQUEST: True}


def test_a_fetch_of_a_replica_is_exempt_for_internal_principals_alone() -> None:
    asked = fetch(CORRELATION_ID, replica_id=2)
    assert Walk(internal=True).ask(asked) == {QuotaType.REQUEST: True}
    assert Walk().ask(asked) == {QuotaType.REQUEST: False, QuotaType.FETCH: False}


def test_an_api_that_is_newer_than_the_table_is_charged_with_its_time() -> None:
    newest = max(QUOTA_CHARGES) + 1
    assert Walk().ask(request(newest, 0, CORRELATION_ID, b"")) == {QuotaType.REQUEST: False}

"""Whatever clients and brokers send, dealing with whole requests ends in messages of the protocol or our own error."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType
from tests.support.brokers.topic_broker import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    PRODUCE,
    Client,
    TopicBroker,
    frames_in,
    request_of,
)
from tests.support.frames import kio_samples
from tests.support.frames.enforcement import CLIENT_ID, Pair

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import AutoCreate, EnforcementRules

APIS = (PRODUCE, METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
PLACES = [place for place in kio_samples.versions_of(EntityType.request) if place[0] in APIS]
REQUESTS = {
    place: kio_samples.request_frame(kio_samples.filled_request(*place), client_id=CLIENT_ID) for place in PLACES
}
RESPONSES = {place: kio_samples.response_frame(kio_samples.filled_response(*place)) for place in PLACES}
MANY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

places = st.sampled_from(PLACES)
flips = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)


def pair(auto_create: AutoCreate) -> Pair:
    """A session of a client with a quota on mutations, to a broker with a total threshold."""
    rules = EnforcementRules(auto_create=auto_create)
    made = Pair(quotas={QuotaType.CONTROLLER_MUTATION: 1.0}, rules=rules, has_topics=True)
    made.topics.thresholds.apply_file(ThresholdSettings(totals={None: 1.0}))
    return made


def changed(frame: bytes, changes: list[tuple[float, int]]) -> bytes:
    """The frame with some bytes of its content replaced.

    Its length stays right.
    """
    content = bytearray(frame[4:])
    for place, value in changes:
        content[int(place * len(content))] = value
    return frame[:4] + bytes(content)


@MANY
@given(place=places, asked=flips, answered=flips, rule=st.sampled_from(AutoCreate), reply=places)
def test_rubbish_raises_nothing_but_an_error_of_ours(
    place: tuple[int, int],
    asked: list[tuple[float, int]],
    answered: list[tuple[float, int]],
    rule: AutoCreate,
    reply: tuple[int, int],
) -> None:
    session = pair(rule)
    try:
        sent = session.send(changed(REQUESTS[place], asked))
        for _ in range(3):
            frames = [frame for frame in frames_in(sent) if len(frame) >= 12]
            if not frames:
                return
            key, version, correlation_id = struct.unpack_from(">hhi", frames[-1], 4)
            frame = changed(RESPONSES.get((key, version), RESPONSES[reply]), answered)
            seen = len(session.upstream)
            session.answer(frame[:4] + struct.pack(">i", correlation_id) + frame[8:])
            sent = session.upstream[seen:]
    except KafkaQuotasError:
        return


topics = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 6)), min_size=1, max_size=8)


@MANY
@given(there=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 5)), wanted=topics)
@pytest.mark.parametrize("version", [5, 7])
def test_every_topic_of_a_request_is_answered_in_order_and_those_refused_are_not_made(
    there: dict[str, int], wanted: list[tuple[str, int]], version: int
) -> None:
    broker = TopicBroker(topics=dict(there))
    who = Client(pair(AutoCreate.COUNT), broker)
    kind = request_of(CREATE_TOPICS, version).CreatableTopic
    asked = [
        kind(version=version, name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in dict(wanted).items()
    ]
    first = who.ask(CREATE_TOPICS, version, topics=asked, timeout_ms=1, validate_only=False)
    assert [result.name for result in first.topics] == list(dict(wanted))
    refused = {result.name for result in first.topics if result.error_code == 89}
    assert not refused & (set(broker.topics) - set(there))
    assert not refused or version >= 6
    assert {name for name in dict(wanted) if name in there} <= {
        result.name for result in first.topics if result.error_code == 36
    }

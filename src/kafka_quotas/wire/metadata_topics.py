"""The topics in Metadata responses: their ids, how many partitions they have, and which brokers lead some.

**Source:** `MetadataResponse.json`, Kafka 4.1, and 3.9 for older versions; KIP-516 (topic ids).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quotas.wire.metadata_request import FLEXIBLE_SINCE, METADATA, TOPIC_ID_SINCE
from kafka_quotas.wire.spelling import ElementList, Spelling, element_list, spelling, with_elements
from kafka_quotas.wire.topic_id import NO_TOPIC_ID, TOPIC_ID_BYTES, TopicId
from kafka_quotas.wire.walk import Buffer, Layout, read_int16, read_int32, walk
from kafka_quotas.wire.whole_frame import whole_response_body

RACK_SINCE: Final = 1
CONTROLLER_SINCE: Final = 1
CLUSTER_ID_SINCE: Final = 2
THROTTLE_SINCE: Final = 3
OFFLINE_REPLICAS_SINCE: Final = 5
LEADER_EPOCH_SINCE: Final = 7
OPERATIONS_SINCE: Final = 8
_NO_OPERATIONS: Final = (-(2**31)).to_bytes(4, "big", signed=True)


class KnownTopic(NamedTuple):
    """One topic as it is told. `name` is None where only its id was asked for and no such topic exists.

    `leaders` are the node ids of the brokers that lead some of its partitions; `start` and `end` are its place.
    """

    error_code: int
    name: str | None
    topic_id: TopicId | None
    partitions: int
    leaders: frozenset[int]
    start: int
    end: int


def known_topics(api_version: int, frame: Buffer) -> tuple[KnownTopic, ...]:
    """Return the topics of a whole Metadata response. *Raises* `ProtocolError` if it can't be one."""
    form = spelling(api_version, FLEXIBLE_SINCE)
    listed = _listed(form, api_version, frame)
    return tuple(_topic(form, api_version, frame, start, end) for start, end in listed.spans)


def with_topics(api_version: int, frame: Buffer, order: Sequence[str], absent: Mapping[str, int]) -> bytes:
    """Return the response with just these topics, in this order; those absent are told as having an error.

    `absent` maps their names to the error codes. A topic that the broker told nothing of is left out.
    """
    form = spelling(api_version, FLEXIBLE_SINCE)
    listed = _listed(form, api_version, frame)
    topics = [_topic(form, api_version, frame, start, end) for start, end in listed.spans]
    by_name = {topic.name: frame[topic.start : topic.end] for topic in topics}
    elements: list[Buffer] = []
    for name in dict.fromkeys(order):
        if name in absent:
            elements.append(_absent(form, api_version, name, absent[name]))
        elif name in by_name:
            elements.append(by_name[name])
    return with_elements(form, frame, listed, elements)


def _listed(form: Spelling, version: int, frame: Buffer) -> ElementList:
    end = len(frame)
    offset = whole_response_body(METADATA, version, frame)
    before: list[Layout] = [(4,)] if version >= THROTTLE_SINCE else []
    rack: Layout = (form.string,) if version >= RACK_SINCE else ()
    before.append((form.array(4, form.string, 4, *rack, *form.tags),))
    if version >= CLUSTER_ID_SINCE:
        before.append((form.string,))
    if version >= CONTROLLER_SINCE:
        before.append((4,))
    offset = walk(tuple(step for steps in before for step in steps), frame, offset, end)
    return element_list(form, _element(form, version), frame, offset, end)


def _element(form: Spelling, version: int) -> Layout:
    topic_id: Layout = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    is_internal: Layout = (1,) if version >= 1 else ()
    operations: Layout = (4,) if version >= OPERATIONS_SINCE else ()
    partitions = form.array(*_partition(form, version))
    return (2, form.string, *topic_id, *is_internal, partitions, *operations, *form.tags)


def _partition(form: Spelling, version: int) -> Layout:
    """Return the layout of a partition, which starts with its error code, its number and its leader."""
    epoch: Layout = (4,) if version >= LEADER_EPOCH_SINCE else ()
    offline: Layout = (form.array(4),) if version >= OFFLINE_REPLICAS_SINCE else ()
    return (2, 4, 4, *epoch, form.array(4), form.array(4), *offline, *form.tags)


def _topic(form: Spelling, version: int, frame: Buffer, start: int, end: int) -> KnownTopic:
    name, offset = form.text(frame, start + 2, end)
    topic_id: TopicId | None = None
    if version >= TOPIC_ID_SINCE:
        told = bytes(frame[offset : offset + TOPIC_ID_BYTES])
        topic_id = None if told == NO_TOPIC_ID else told
        offset += TOPIC_ID_BYTES
    if version >= 1:
        offset += 1
    partitions = element_list(form, _partition(form, version), frame, offset, end)
    leaders = frozenset(read_int32(frame, place + 6, end) for place, _ in partitions.spans)
    return KnownTopic(read_int16(frame, start, end), name, topic_id, len(partitions.spans), leaders - {-1}, start, end)


def _absent(form: Spelling, version: int, name: str, error_code: int) -> bytes:
    pieces = [error_code.to_bytes(2, "big"), form.encoded_text(name)]
    if version >= TOPIC_ID_SINCE:
        pieces.append(NO_TOPIC_ID)
    if version >= 1:
        pieces.append(b"\0")
    pieces.append(form.encoded_count(0))
    if version >= OPERATIONS_SINCE:
        pieces.append(_NO_OPERATIONS)
    return b"".join((*pieces, form.no_tags))

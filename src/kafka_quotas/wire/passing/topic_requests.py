"""CreateTopics, CreatePartitions and DeleteTopics requests: their topics, and the same request with fewer topics.

CreateTopics and CreatePartitions name partition counts. DeleteTopics identifies topics by name or, from version 6 on,
by id.

**Source:** `CreateTopicsRequest.json`, `CreatePartitionsRequest.json`, `DeleteTopicsRequest.json`, Kafka 4.1, and 3.9
for older versions; KIP-195 (validate only), KIP-464 (partitions of -1: the broker's default), KIP-516 (topic ids).
"""

from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.encoding import (
    MAX_ELEMENTS,
    NO_TOPIC_ID,
    TOPIC_ID_BYTES,
    ElementList,
    Spelling,
    TopicId,
    element_list,
    spelling,
)
from kafka_quotas.wire.codec.skip import Buffer, Layout, read_int32, walk
from kafka_quotas.wire.protocol.request_header import RequestHeader

PARTITIONS_FLEXIBLE_SINCE: Final = 2


class GrownTopic(NamedTuple):
    """A topic and its total number of partitions after the change."""

    name: str
    partitions: int


class CreatePartitionsRequest(NamedTuple):
    """The topics in order, their place, and whether the request only validates."""

    topics: tuple[GrownTopic, ...]
    listed: ElementList
    validate_only: bool


def parse_create_partitions(frame: Buffer, header: RequestHeader) -> CreatePartitionsRequest:
    """Return the content of a whole CreatePartitions request.

    Raises:
        ProtocolError: The frame can't be such a request.
    """
    form = spelling(header.api_version, PARTITIONS_FLEXIBLE_SINCE)
    end = header.frame_end
    assignments = form.structs(form.array(4))
    element = (form.string, 4, assignments, *form.tags)
    listed = element_list(form, element, frame, header.end, end, at_most=MAX_ELEMENTS)
    topics = tuple(_grown_topic(form, frame, start, behind) for start, behind in listed.spans)
    flag = walk((4,), frame, listed.end, end)
    walk((1,), frame, flag, end)
    return CreatePartitionsRequest(topics, listed, bool(frame[flag]))


def _grown_topic(form: Spelling, frame: Buffer, start: int, end: int) -> GrownTopic:
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic that is to grow has no name")
    return GrownTopic(name, read_int32(frame, offset, end))


CREATE_FLEXIBLE_SINCE: Final = 5
VALIDATE_ONLY_SINCE: Final = 1


class NewTopic(NamedTuple):
    """A topic that a CreateTopics request names."""

    name: str
    partitions: int
    """The count in the request (-1: the broker's default), or that of its manual assignments."""
    is_assigned: bool
    """Whether the count is that of manual assignments."""


class CreateTopicsRequest(NamedTuple):
    """The topics in order, their place, and whether the request only validates."""

    topics: tuple[NewTopic, ...]
    listed: ElementList
    validate_only: bool


def parse_create_topics(frame: Buffer, header: RequestHeader) -> CreateTopicsRequest:
    """Return the content of a whole CreateTopics request.

    Raises:
        ProtocolError: The frame can't be such a request.
    """
    form = spelling(header.api_version, CREATE_FLEXIBLE_SINCE)
    end = header.frame_end
    assignments = form.structs(4, form.array(4))
    configs = form.structs(form.string, form.string)
    element = (form.string, 4, 2, assignments, configs, *form.tags)
    listed = element_list(form, element, frame, header.end, end, at_most=MAX_ELEMENTS)
    topics = tuple(_new_topic(form, frame, start, behind) for start, behind in listed.spans)
    flag = walk((4,), frame, listed.end, end)
    validate_only = False
    if header.api_version >= VALIDATE_ONLY_SINCE:
        walk((1,), frame, flag, end)
        validate_only = bool(frame[flag])
    return CreateTopicsRequest(topics, listed, validate_only)


def _new_topic(form: Spelling, frame: Buffer, start: int, end: int) -> NewTopic:
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic to be created has no name")
    assigned, _ = form.array_count(frame, offset + 6, end)
    return NewTopic(name, assigned or read_int32(frame, offset, end), assigned > 0)


DELETE_FLEXIBLE_SINCE: Final = 4
TOPICS_SINCE: Final = 6
"""First version whose elements are structures, with a name or an id."""

TopicKey: TypeAlias = str | TopicId | None
"""The name or id of a topic, or None for neither."""


class DeleteTopicsRequest(NamedTuple):
    """The topics in order, each by its name or its id, and their place."""

    topics: tuple[TopicKey, ...]
    listed: ElementList


def parse_delete_topics(frame: Buffer, header: RequestHeader) -> DeleteTopicsRequest:
    """Return the content of a whole DeleteTopics request.

    Raises:
        ProtocolError: The frame can't be such a request.
    """
    form = spelling(header.api_version, DELETE_FLEXIBLE_SINCE)
    has_ids = header.api_version >= TOPICS_SINCE
    element: Layout = (form.string, TOPIC_ID_BYTES, *form.tags) if has_ids else (form.string,)
    listed = element_list(form, element, frame, header.end, header.frame_end, at_most=MAX_ELEMENTS)
    topics = tuple(_key(form, frame, start, behind, has_ids=has_ids) for start, behind in listed.spans)
    return DeleteTopicsRequest(topics, listed)


def _key(form: Spelling, frame: Buffer, start: int, end: int, *, has_ids: bool) -> TopicKey:
    name, offset = form.text(frame, start, end)
    if name is not None or not has_ids:
        return name
    topic_id = bytes(frame[offset : offset + TOPIC_ID_BYTES])
    return None if topic_id == NO_TOPIC_ID else topic_id

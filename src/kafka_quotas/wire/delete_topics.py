"""DeleteTopics requests: which topics are to go, by name or, from version 6 on, by id.

**Source:** `DeleteTopicsRequest.json`, Kafka 4.1, and 3.9 for version 0; KIP-516 (topic ids).
"""

from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.spelling import MAX_ELEMENTS, ElementList, Spelling, element_list, spelling
from kafka_quotas.wire.topic_id import NO_TOPIC_ID, TOPIC_ID_BYTES, TopicId
from kafka_quotas.wire.walk import Buffer, Layout

DELETE_TOPICS: Final = 20
FLEXIBLE_SINCE: Final = 4
TOPICS_SINCE: Final = 6
"""First version whose elements are structures, with a name or an id."""

TopicKey: TypeAlias = str | TopicId | None
"""What names a topic: its name or its id; None is what names none."""


class DeleteTopicsRequest(NamedTuple):
    """The topics in order, each by its name or its id, and where they are."""

    topics: tuple[TopicKey, ...]
    listed: ElementList


def parse_delete_topics(frame: Buffer, header: RequestHeader) -> DeleteTopicsRequest:
    """Return what a whole DeleteTopics request asks for. *Raises* `ProtocolError` if it can't be one."""
    form = spelling(header.api_version, FLEXIBLE_SINCE)
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

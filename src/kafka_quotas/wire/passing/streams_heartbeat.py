"""The internal topics that a broker is creating for a streams group, from its heartbeat responses.

A response has no field for them: they are in the detail of a status, which is a text.

**Source:** KIP-1071; `StreamsGroupHeartbeatResponse.json`, `InternalTopicManager` and
`KafkaApis.handleStreamsGroupHeartbeat`, Kafka 4.3.1.
"""

from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import COMPACT
from kafka_quotas.wire.codec.skip import Buffer, Layout, compact_array_count, compact_string, skip, tags
from kafka_quotas.wire.protocol.header import whole_response_body

MISSING_INTERNAL_TOPICS: Final = 3
"""The status code whose detail names the topics."""
DETAIL_START: Final = "Internal topics are missing: "
MAY_NOT_CREATE: Final = "Unauthorized to CREATE on topics "
"""The continuation of the detail if the broker creates none of them."""

_BEFORE_STATUS: Final[Layout] = (6, compact_string, compact_string, 16)
"""Throttle time and error, its message, the member, its epoch and three intervals."""


def topics_in_the_making(api_version: int, frame: Buffer) -> tuple[str, ...]:
    """Return the names of the internal topics that the broker creates because of this heartbeat.

    Raises:
        ProtocolError: The frame can't be such a response.
    """
    end = len(frame)
    body = whole_response_body(ApiKey.STREAMS_GROUP_HEARTBEAT, api_version, frame)
    count, offset = compact_array_count(frame, skip(_BEFORE_STATUS, frame, body, end), end)
    names: tuple[str, ...] = ()
    for _ in range(count):
        # A status is a code of one byte, a detail and tags.
        code_at, offset = offset, skip((1,), frame, offset, end)
        detail, offset = COMPACT.text(frame, offset, end)
        offset = tags(frame, offset, end)
        if frame[code_at] == MISSING_INTERNAL_TOPICS:
            names += _named(detail or "")
    return names


def _named(detail: str) -> tuple[str, ...]:
    if not detail.startswith(DETAIL_START):
        return ()
    # A reason why they aren't created follows after a semicolon.
    listed, _, rest = detail.removeprefix(DETAIL_START).partition(";")
    # The broker creates either all of the topics or, without the right to, none.
    if MAY_NOT_CREATE in rest:
        return ()
    return tuple(name for name in listed.split(", ") if name)

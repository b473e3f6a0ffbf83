"""What a request would create, grow or delete, and how many partitions each of its topics costs, as a broker counts.

A topic that is created costs the partitions it gets, one that grows those it gains, one that is deleted those it has. A
topic costs nothing where the broker will refuse it whatever the quota says: it exists already, it does not exist, the
request names it twice.
**Source:** `ControllerApis`, `ReplicationControlManager` (4.x), `ZkAdminManager` (3.9).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.wire.codec.encoding import ElementList, Spelling, spelling, with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import KnownTopic
from kafka_quotas.wire.passing.topic_requests import (
    CREATE_FLEXIBLE_SINCE,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_FLEXIBLE_SINCE,
    DELETE_TOPICS,
    PARTITIONS_FLEXIBLE_SINCE,
    TopicKey,
    parse_create_partitions,
    parse_create_topics,
    parse_delete_topics,
)
from kafka_quotas.wire.protocol.request_header import RequestHeader

DEFAULT_PARTITIONS: Final = -1
"""Asked for by whoever leaves the number of partitions to the broker. **Source:** KIP-464."""
NO_ERROR: Final = 0
INVALID_TOPIC: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutations:
    """The topics of one request in order: what each goes by, and how many partitions it is to have (0: none any more).

    `is_free` says that nothing is to be done, only looked at.
    """

    api_key: int
    keys: tuple[TopicKey, ...]
    wanted: tuple[int, ...]
    listed: ElementList
    form: Spelling
    is_free: bool

    def costs(self, known: Mapping[TopicKey, KnownTopic], *, default_partitions: int) -> list[int]:
        """What each topic costs in partitions, given what the broker knows of them by name or id."""
        times = Counter(self.keys)
        return [
            0 if key is None or times[key] > 1 else self._cost(wanted, known.get(key), default_partitions)
            for key, wanted in zip(self.keys, self.wanted, strict=True)
        ]

    def kept(self, frame: Buffer, indices: Sequence[int]) -> bytes:
        """The request with only the topics of these numbers."""
        spans = [self.listed.spans[index] for index in indices]
        return with_elements(self.form, frame, self.listed, [frame[start:end] for start, end in spans])

    def _cost(self, wanted: int, known: KnownTopic | None, default_partitions: int) -> int:
        exists = known is not None and (known.error_code == NO_ERROR or known.partitions > 0)
        if self.api_key == CREATE_TOPICS:
            if exists or (known is not None and known.error_code == INVALID_TOPIC):
                return 0
            return default_partitions if wanted == DEFAULT_PARTITIONS else max(wanted, 0)
        if known is None or not exists:
            return 0
        return known.partitions if self.api_key == DELETE_TOPICS else max(wanted - known.partitions, 0)


def mutations_of(frame: Buffer, header: RequestHeader) -> Mutations:
    """What a whole CreateTopics, CreatePartitions or DeleteTopics request asks for.

    Raises `ProtocolError` where it can't be one.
    """
    version = header.api_version
    if header.api_key == CREATE_TOPICS:
        new = parse_create_topics(frame, header)
        return Mutations(
            api_key=CREATE_TOPICS,
            keys=tuple(topic.name for topic in new.topics),
            wanted=tuple(topic.partitions for topic in new.topics),
            listed=new.listed,
            form=spelling(version, CREATE_FLEXIBLE_SINCE),
            is_free=new.validate_only,
        )
    if header.api_key == CREATE_PARTITIONS:
        grown = parse_create_partitions(frame, header)
        return Mutations(
            api_key=CREATE_PARTITIONS,
            keys=tuple(topic.name for topic in grown.topics),
            wanted=tuple(topic.partitions for topic in grown.topics),
            listed=grown.listed,
            form=spelling(version, PARTITIONS_FLEXIBLE_SINCE),
            is_free=grown.validate_only,
        )
    deleted = parse_delete_topics(frame, header)
    return Mutations(
        api_key=DELETE_TOPICS,
        keys=deleted.topics,
        wanted=(0,) * len(deleted.topics),
        listed=deleted.listed,
        form=spelling(version, DELETE_FLEXIBLE_SINCE),
        is_free=False,
    )

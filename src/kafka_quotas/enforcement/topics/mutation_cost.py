"""The topics that a request creates, grows or deletes, and the cost of each in partitions, as a broker counts it.

A created topic costs the partitions it gets, a growing one those it gains, a deleted one those it has. A topic costs
nothing where the broker refuses it regardless of the quota: it exists already, it does not exist, or the request names
it twice.

**Source:** `ControllerApis`, `ReplicationControlManager` (4.x), `ZkAdminManager` (3.9).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import ElementList, Encoding, with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import KnownTopic
from kafka_quotas.wire.passing.topic_mutations import TopicKey, parse_mutation
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.request_header import RequestHeader

DEFAULT_PARTITIONS: Final = -1
"""Partitions of a request that leaves the number to the broker. **Source:** KIP-464."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutations:
    """The topics of one request in their order."""

    api_key: int
    keys: tuple[TopicKey, ...]
    """Name or id of each topic."""
    wanted: tuple[int, ...]
    """Partitions of each topic after the request, 0 for a deleted one."""
    listed: ElementList
    """The place of each topic in the frame."""
    form: Encoding
    """The encoding of the request's version."""
    is_free: bool
    """Whether the request only validates and changes nothing."""

    def costs(self, known: Mapping[TopicKey, KnownTopic], *, default_partitions: int) -> list[int]:
        """Return the cost of each topic in partitions.

        Args:
            known: The topics as the broker reported them, by name and by id.
            default_partitions: Partitions of a topic whose request leaves the number to the broker.
        """
        times = Counter(self.keys)
        return [
            0 if key is None or times[key] > 1 else self._cost(wanted, known.get(key), default_partitions)
            for key, wanted in zip(self.keys, self.wanted, strict=True)
        ]

    def kept(self, frame: Buffer, indices: Sequence[int]) -> bytes:
        """Return the request with only the topics at these indices."""
        spans = [self.listed.spans[index] for index in indices]
        return with_elements(self.form, frame, self.listed, [frame[start:end] for start, end in spans])

    def _cost(self, wanted: int, known: KnownTopic | None, default_partitions: int) -> int:
        exists = known is not None and (known.error_code == ErrorCode.NONE or known.partitions > 0)
        if self.api_key == ApiKey.CREATE_TOPICS:
            if exists or (known is not None and known.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION):
                return 0
            return default_partitions if wanted == DEFAULT_PARTITIONS else max(wanted, 0)
        if known is None or not exists:
            return 0
        return known.partitions if self.api_key == ApiKey.DELETE_TOPICS else max(wanted - known.partitions, 0)


def mutations_of(frame: Buffer, header: RequestHeader) -> Mutations:
    """Parse a whole CreateTopics, CreatePartitions or DeleteTopics request.

    Raises:
        ProtocolError: The frame is no such request.
    """
    request = parse_mutation(frame, header)
    return Mutations(
        api_key=request.api_key,
        keys=request.keys,
        wanted=request.partitions,
        listed=request.listed,
        form=request.form,
        is_free=request.validate_only,
    )

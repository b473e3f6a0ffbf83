"""The charge of a logged request: estimated sizes, and the partitions of admin requests.

The request log holds the size of the records only. The framing around them is computed from the message definitions.
Tagged fields that a client may add are unknown, which is why these sizes are called estimated. The log holds neither
the partitions of a deleted topic nor the number before some were added: one per topic is counted then, and the figure
is estimated.

**Source:** ProduceRequest.json, FetchResponse.json, RequestHeader.json (Kafka 4.0), ShareFetchResponse.json (4.3);
`KafkaApis.handleProduceRequest` charges the whole request, `FetchResponse.sizeOf` and `ShareFetchResponse.sizeOf` are a
fetch's charge; KIP-599 and `ReplicationControlManager` (Kafka 4.0) for partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from kafka_quotas.core.model.api_key import ApiKey

_CREATE_TOPICS: Final = ApiKey.CREATE_TOPICS.value
_DELETE_TOPICS: Final = ApiKey.DELETE_TOPICS.value
_CREATE_PARTITIONS: Final = ApiKey.CREATE_PARTITIONS.value
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MUTATION_APIS: Final = frozenset({_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS})


def mutation_count(api_key: int, *, request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the partitions charged to a request of `MUTATION_APIS`, and whether they are estimated.

    Topics that the broker refused cost nothing.
    """
    if request.get("validateOnly"):  # a dry run changes no partitions
        return 0, False
    # CreateTopics has topics, DeleteTopics responses, CreatePartitions results
    results = response.get("topics", response.get("responses", response.get("results", ())))
    accepted = [result for result in results if result["errorCode"] == 0]
    if api_key == _CREATE_TOPICS:
        return _created(request, accepted)
    if api_key == _DELETE_TOPICS:
        return len(accepted), bool(accepted)
    return _added(request, accepted)


def is_of_broker(api_key: int, *, client_id: str, request: Mapping[str, Any]) -> bool:
    """Check whether a broker creates internal topics for itself, under its own id as client-id.

    Topics that clients create by asking for them are created under the client's name.

    **Source:** `DefaultAutoTopicCreationManager`, `KafkaApis.handleFindCoordinatorRequest` (4.0).
    """
    if api_key != _CREATE_TOPICS or not client_id.isdecimal():
        return False
    names = {topic["name"] for topic in request["topics"]}
    return bool(names) and names <= _INTERNAL_TOPICS


def _created(request: Mapping[str, Any], accepted: list[Mapping[str, Any]]) -> tuple[int, bool]:
    logged = {topic["name"]: topic.get("numPartitions", -1) for topic in accepted}  # from version 5 on
    counts = [
        logged[name] if logged[name] > 0 else max(topic["numPartitions"], len(topic.get("assignments") or ()))
        for topic in request["topics"]
        if (name := topic["name"]) in logged
    ]
    # below 1 it is the broker's default, which is not logged
    return sum(max(1, count) for count in counts), any(count < 1 for count in counts)


def _added(request: Mapping[str, Any], accepted: list[Mapping[str, Any]]) -> tuple[int, bool]:
    names = {topic["name"] for topic in accepted}
    assignments = [topic.get("assignments") or () for topic in request["topics"] if topic["name"] in names]
    return sum(max(1, len(each)) for each in assignments), not all(assignments)


CLASSIC_HEADER_BYTES: Final = 10  # api key, version, correlation id, length of the client-id
_UUID_BYTES: Final = 16
_COMPACT_FROM: Final = {ApiKey.PRODUCE.value: 9, ApiKey.FETCH.value: 12}
"""First versions with compact lengths and tagged fields."""
_TOPIC_IDS_FROM: Final = 13
"""First version of both with topic ids in place of names."""


class Field(Enum):
    """A field of a varying size."""

    TEXT = auto()
    NULLABLE_TEXT = auto()
    RECORDS = auto()
    """Logged by their size."""


@dataclass(frozen=True, slots=True)
class Charged:
    """A message, or an object in a list of one, with what is charged for it."""

    fixed_bytes: int
    """Bytes of the fields of one size."""
    fields: Mapping[str, "Field | Charged"] = field(default_factory=dict)
    """The other fields, and lists by their objects."""
    is_nullable: bool = False
    """Whether the list of such objects may be null."""

    def size(self, message: Mapping[str, Any], *, is_compact: bool) -> int:
        """Return the bytes of a logged message, with compact lengths and the end of tagged fields or without."""

        def length_bytes(length: int, classic: int = 4) -> int:
            return compact_length_bytes(length) if is_compact else classic

        size = self.fixed_bytes + is_compact
        for name, kind in self.fields.items():
            if kind is Field.RECORDS:
                size += message[name] + length_bytes(message[name])
            elif isinstance(kind, Field):
                text = (message[name] if kind is Field.TEXT else message.get(name) or "").encode()
                size += len(text) + length_bytes(len(text), 2)
            else:
                objects = message.get(name) or () if kind.is_nullable else message[name]
                size += length_bytes(len(objects)) + sum(kind.size(each, is_compact=is_compact) for each in objects)
        return size


def is_compact(api_key: int, version: int) -> bool:
    """Check whether Produce or Fetch of a version has compact lengths and tagged fields."""
    return version >= _COMPACT_FROM[api_key]


def _topics(name: str, version: int, partitions: Mapping[str, Charged]) -> Charged:
    if version >= _TOPIC_IDS_FROM:
        return Charged(_UUID_BYTES, partitions)
    return Charged(0, {name: Field.TEXT, **partitions})


@lru_cache
def produce_request(version: int) -> Charged:
    """Return a Produce request with the tagged fields of its header."""
    partition = Charged(4, {"recordsSizeInBytes": Field.RECORDS})  # index
    topics = _topics("name", version, {"partitionData": partition})
    fixed = 2 + 4 + is_compact(ApiKey.PRODUCE, version)  # acks, timeout
    return Charged(fixed, {"transactionalId": Field.NULLABLE_TEXT, "topicData": topics})


@lru_cache
def fetch_response(version: int) -> Charged:
    """Return a Fetch response."""
    partition = Charged(
        4 + 2 + 8 + 8 + 8 + 4,  # index, error, three offsets, preferred replica
        {
            "abortedTransactions": Charged(8 + 8, is_nullable=True),  # producer id, first offset
            "recordsSizeInBytes": Field.RECORDS,
        },
    )
    topics = _topics("topic", version, {"partitions": partition})
    return Charged(4 + 4 + 2 + 4, {"responses": topics})  # size, throttle time, error, session id


_SHARE_PARTITION: Final = Charged(
    4 + 2 + 2 + 8 + 1,  # index, two errors, leader with its epoch and tags
    {
        "errorMessage": Field.NULLABLE_TEXT,
        "acknowledgeErrorMessage": Field.NULLABLE_TEXT,
        "recordsSizeInBytes": Field.RECORDS,
        "acquiredRecords": Charged(8 + 8 + 2),  # first and last offset, deliveries
    },
)
_SHARE_FETCH_RESPONSE: Final = Charged(
    4 + 4 + 2 + 1 + 4 + 1,  # size, throttle time, error, no message, lock duration, no brokers
    {"responses": Charged(_UUID_BYTES, {"partitions": _SHARE_PARTITION})},
)


def produce_request_bytes(request: Mapping[str, Any], *, version: int, client_id: str) -> int:
    """Return the size of a Produce request with its header, in bytes."""
    body = produce_request(version).size(request, is_compact=is_compact(ApiKey.PRODUCE, version))
    return CLASSIC_HEADER_BYTES + len(client_id.encode()) + body


def fetch_response_bytes(response: Mapping[str, Any], *, version: int) -> int:
    """Return the charge of a Fetch response in bytes.

    Returns:
        0 for the empty response to a throttled fetch.
    """
    if not response["responses"] and response["throttleTimeMs"] > 0:
        return 0
    return fetch_response(version).size(response, is_compact=is_compact(ApiKey.FETCH, version))


def share_fetch_response_bytes(response: Mapping[str, Any]) -> int:
    """Return the charge of a ShareFetch response in bytes.

    Returns:
        0 for an error as a whole, and for a throttled response, whose bytes the broker takes back.
    """
    is_free = response["errorCode"] or response["throttleTimeMs"] > 0
    return 0 if is_free else _SHARE_FETCH_RESPONSE.size(response, is_compact=True)


def compact_length_bytes(length: int) -> int:
    """Return the size of a length that is encoded plus one, seven bits at a time, in bytes."""
    return 1 if length < 0x7F else 2 if length < 0x3FFF else 3 if length < 0x1FFFFF else 4 if length < 0xFFFFFFF else 5

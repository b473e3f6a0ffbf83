"""A line of a broker's request log as an event.

Both formats are read, Kafka 4's and 3.9's: `[timestamp] DEBUG Completed request:{JSON} (kafka.request.logger)`. The
timestamp is the time after sending the response, which the broker queues for sending after it charged quotas.

The log holds the size of the records only. The framing around them is computed from the message definitions. Tagged
fields that a client may add are unknown, which is why these sizes are called estimated. The log holds neither the
partitions of a deleted topic nor the number before some were added: one per topic is counted then, and the figure is
estimated.

**Source:** `RequestConvertToJson`, `RequestChannel.updateRequestMetrics` and `KafkaApis` (3.9, 4.0), KIP-13, KIP-124.
ProduceRequest.json, FetchResponse.json, RequestHeader.json (Kafka 4.0), ShareFetchResponse.json (4.3).
`KafkaApis.handleProduceRequest` charges the whole request, `FetchResponse.sizeOf` and `ShareFetchResponse.sizeOf` are a
fetch's charge. KIP-599 and `ReplicationControlManager` (Kafka 4.0) for partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, RequestTime
from kafka_quotas.pipeline.formats.task import AMOUNT_LIMIT, REQUEST_MARK, BadLineError, EventRow
from kafka_quotas.pipeline.formats.timestamp import LocalClock

_PRODUCE: Final = ApiKey.PRODUCE.value
_FETCH: Final = ApiKey.FETCH.value
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
_PRODUCE_TYPE: Final = QuotaType.PRODUCE.value
_FETCH_TYPE: Final = QuotaType.FETCH.value
_REQUEST_TYPE: Final = QuotaType.REQUEST.value
_MUTATION_TYPE: Final = QuotaType.CONTROLLER_MUTATION.value
BROKER_APIS: Final = frozenset(
    {
        *(
            key
            for key, row in QUOTA_CHARGES.items()
            if row.request_time in (RequestTime.UNLESS_BROKER, RequestTime.NOT_SERVED)
        ),
        ApiKey.ALLOCATE_PRODUCER_IDS.value,
        ApiKey.READ_SHARE_GROUP_STATE.value,
        ApiKey.WRITE_SHARE_GROUP_STATE.value,
        ApiKey.DELETE_SHARE_GROUP_STATE.value,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY.value,
    }
)
"""Requests between brokers and controllers, exempt as such."""
_row: Final[Callable[[tuple[Any, ...]], EventRow]] = partial(tuple.__new__, EventRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOrigin:
    """What a request log does not record about itself."""

    cluster: str
    broker_id: int
    src_file: str


def parse_request_line(line: bytes, *, offset: int, clock: LocalClock, origin: LogOrigin) -> EventRow | None:
    """Parse the event of a line.

    `offset` is the line's offset in its file, `clock` that of its log.

    Returns:
        None for a forwarded request, which the forwarding broker logs as well.

    Raises:
        BadLineError: The line is no request, or a field is missing or wrong.
    """
    start = line.find(REQUEST_MARK)
    if start < 0:
        raise BadLineError("not a line of the request log")
    entry = _load(line[start + len(REQUEST_MARK) : line.rfind(b"}") + 1])
    try:
        if entry["isForwarded"] is True:
            return None
        return _event(entry, clock.read_ms(line), offset, origin)
    except KeyError as error:
        raise BadLineError(f"the request lacks {error.args[0]}") from error
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise BadLineError(f"the request has a field of another kind: {error}") from error


def _load(text: bytes) -> Mapping[str, Any]:
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"broken JSON: {error.msg}" if _is_utf8(text) else "not UTF-8") from error
    if not isinstance(entry, dict):
        raise BadLineError("broken JSON: no object")
    return entry


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _event(entry: Mapping[str, Any], completed_ms: int, offset: int, origin: LogOrigin) -> EventRow:
    header, connection, principal = entry["requestHeader"], entry["connection"], entry["principal"]
    api_key, client_id = header["requestApiKey"], header["clientId"] or ""
    if type(connection) is not str or type(principal) is not str or type(client_id) is not str:
        raise TypeError("no text where one should be")
    if type(api_key) is not int or not -1 <= api_key < 2**15:
        raise BadLineError("requestApiKey is not a number of a request")
    quota_type, size, mutations, is_estimated = _charge(api_key, entry, client_id)
    thread_us, throttle_ms = round(entry["localTimeMs"] * 1000), round(entry["throttleTimeMs"])
    sending_ms = round(entry["sendTimeMs"] + entry["responseQueueTimeMs"])
    if type(size) is not int or type(mutations) is not int:
        raise TypeError("no whole number where one should be")
    if not (0 <= thread_us < AMOUNT_LIMIT and 0 <= throttle_ms < AMOUNT_LIMIT and 0 <= size < AMOUNT_LIMIT):
        raise ValueError("a figure out of range")
    if not (0 <= mutations < 2**31 and 0 <= sending_ms < 2**31):
        raise ValueError("a figure out of range")
    return _row(  # by place, and past the check of how many: names cost a third of the line's time
        (
            origin.cluster,
            origin.broker_id,
            completed_ms - sending_ms,
            user_name(principal),
            client_id,
            client_ip(connection),
            quota_type,
            size,
            thread_us / 1000,
            mutations,
            throttle_ms,
            api_key,
            _is_of_broker(api_key, client_id, entry["request"]),
            is_estimated,
            True,
            connection,
            origin.src_file,
            offset,
        )
    )


def _charge(api_key: Any, entry: Mapping[str, Any], client_id: str) -> tuple[str, int, int, bool]:
    """Return the quota type, bytes, mutations, and whether these are estimated."""
    version = entry["requestHeader"]["requestApiVersion"]
    if api_key == _PRODUCE:
        return _PRODUCE_TYPE, produce_request_bytes(entry["request"], version=version, client_id=client_id), 0, True
    if api_key == _FETCH:
        return _FETCH_TYPE, fetch_response_bytes(entry["response"], version=version), 0, True
    if api_key == _SHARE_FETCH:
        return _FETCH_TYPE, share_fetch_response_bytes(entry["response"]), 0, True
    if api_key in MUTATION_APIS:
        return _MUTATION_TYPE, 0, *mutation_count(api_key, request=entry["request"], response=entry["response"])
    return _REQUEST_TYPE, 0, 0, False


def _is_of_broker(api_key: int, client_id: str, request: Mapping[str, Any]) -> bool:
    """Check whether a broker asks for itself: as a follower, or by an API of brokers.

    It creates internal topics under its own id as client-id. Topics that clients create by asking for them are created
    under the client's name.

    **Source:** `DefaultAutoTopicCreationManager`, `KafkaApis.handleFindCoordinatorRequest` (4.0).
    """
    if api_key == _FETCH:  # `replicaState` holds the follower from version 15 on
        return int(request.get("replicaId", (request.get("replicaState") or {}).get("replicaId", -1))) >= 0
    if api_key != _CREATE_TOPICS or not client_id.isdecimal():
        return api_key in BROKER_APIS
    names = {topic["name"] for topic in request["topics"]}
    return bool(names) and names <= _INTERNAL_TOPICS


@lru_cache(maxsize=65_536)
def client_ip(connection: str) -> str:
    """Return the client's address from `LOCAL:PORT-REMOTE:PORT-NUMBERS`, empty for another shape."""
    parts = connection.split("-")
    return parts[1].rpartition(":")[0] if len(parts) > 2 else ""


@lru_cache(maxsize=65_536)
def user_name(principal: str) -> str:
    """Return the name of a principal, which is written `TYPE:NAME`."""
    return principal.partition(":")[2]


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

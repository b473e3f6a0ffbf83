"""A line of a broker's request log as an event.

Both formats are read, Kafka 4's and 3.9's: `[timestamp] DEBUG Completed request:{JSON} (kafka.request.logger)`. The
timestamp is the time after sending the response, which the broker queues for sending after it charged quotas.

**Source:** `RequestConvertToJson`, `RequestChannel.updateRequestMetrics` and `KafkaApis` (3.9, 4.0), KIP-13, KIP-124,
KIP-599.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, RequestTime
from kafka_quotas.pipeline.formats.request_charge import (
    MUTATION_APIS,
    fetch_response_bytes,
    is_of_broker,
    mutation_count,
    produce_request_bytes,
    share_fetch_response_bytes,
)
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
    if api_key == _FETCH:  # of a follower, which `replicaState` holds from version 15 on
        return int(request.get("replicaId", (request.get("replicaState") or {}).get("replicaId", -1))) >= 0
    return api_key in BROKER_APIS or is_of_broker(api_key, client_id=client_id, request=request)


@lru_cache(maxsize=65_536)
def client_ip(connection: str) -> str:
    """Return the client's address from `LOCAL:PORT-REMOTE:PORT-NUMBERS`, empty for another shape."""
    parts = connection.split("-")
    return parts[1].rpartition(":")[0] if len(parts) > 2 else ""


@lru_cache(maxsize=65_536)
def user_name(principal: str) -> str:
    """Return the name of a principal, which is written `TYPE:NAME`."""
    return principal.partition(":")[2]

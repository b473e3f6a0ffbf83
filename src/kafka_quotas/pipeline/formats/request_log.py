"""A line of a broker's request log as an event.

Both formats are read, Kafka 4's and 3.9's: `[timestamp] DEBUG Completed request:{JSON} (kafka.request.logger)`. The
timestamp is the time after sending the response, which the broker queues for sending after it charged quotas. Without
an offset it is local time of the given zone.

**Source:** `RequestConvertToJson`, `RequestChannel.updateRequestMetrics` and `KafkaApis` (3.9, 4.0), KIP-13, KIP-124,
KIP-599, log4j's `%d`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

import orjson

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.formats.request_charge import (
    MUTATION_APIS,
    fetch_response_bytes,
    is_of_broker,
    mutation_count,
    produce_request_bytes,
    share_fetch_response_bytes,
)
from kafka_quotas.pipeline.formats.task import AMOUNT_LIMIT, REQUEST_MARK, BadLineError, EventRow

_TIMESTAMP: Final = re.compile(
    rb"\[?(?P<minute>\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(?P<second>[0-5]\d)(?:[,.](?P<fraction>\d{1,9}))?"
    rb"(?P<offset>Z|[+-]\d\d:?\d\d)?"
)
_MINUTES_PER_DAY: Final = 24 * 60
_REMEMBERED_MINUTES: Final = 4 * _MINUTES_PER_DAY
_MINUTE_MS: Final = 60_000
_NEAR_MS: Final = 2 * 60 * _MINUTE_MS
_JITTER_MS: Final = 5 * _MINUTE_MS
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time of any zone


class LocalClock:
    """The times in UTC of a log's local times, read in the order of the log.

    Where clocks go back, a local time has two meanings. It is the earlier one, unless the line before it is later by
    more than lines of a log are out of order: then the hour is being repeated.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._meanings: dict[int, tuple[int, int]] = {}
        self._previous_ms: int | None = None
        self._stray_ms: int | None = None

    def utc_ms(self, minute: int) -> int:
        """Return when a local minute begins, in ms since 1970 UTC.

        Args:
            minute: Minutes since 1970 as the log writes them.
        """
        earlier_ms, later_ms = self._meanings.get(minute) or self._add(minute)
        found_ms = earlier_ms
        if later_ms != earlier_ms and self._previous_ms is not None:
            ahead_ms = self._previous_ms - earlier_ms
            found_ms = later_ms if _JITTER_MS < ahead_ms < _NEAR_MS else earlier_ms
        self._follow(found_ms)
        return found_ms

    def is_ambiguous(self, minute: int) -> bool:
        """Check whether a local minute has two meanings."""
        earlier_ms, later_ms = self._meanings.get(minute) or self._add(minute)
        return earlier_ms != later_ms

    def _follow(self, found_ms: int) -> None:
        """Remember the time of the line, but not a single one that is far from its neighbours."""
        known_ms = (self._previous_ms, self._stray_ms)
        if self._previous_ms is None or any(each is not None and abs(found_ms - each) <= _NEAR_MS for each in known_ms):
            self._previous_ms, self._stray_ms = found_ms, None
        else:
            self._stray_ms = found_ms

    def _add(self, minute: int) -> tuple[int, int]:
        if self._zone is None:
            raise BadLineError("the time stamp has no zone, and none was given")
        local = (_EPOCH + timedelta(minutes=minute)).replace(tzinfo=self._zone)
        first_ms, second_ms = (round(local.replace(fold=fold).timestamp()) * 1000 for fold in (0, 1))
        if len(self._meanings) >= _REMEMBERED_MINUTES:
            self._meanings.clear()
        # where clocks go forward the two differ too, but there the second is the smaller one
        meanings = self._meanings[minute] = (first_ms, max(first_ms, second_ms))
        return meanings


class TimestampReader:
    """Reads the timestamp at the beginning of a line, by a clock where it has no offset."""

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._minutes: dict[bytes, int] = {}

    def read_ms(self, line: bytes) -> int:
        """Return the timestamp in ms since 1970.

        Raises:
            BadLineError: The line begins with no timestamp or an impossible one, or it needs a zone and none was given.
        """
        match = _TIMESTAMP.match(line)
        if match is None:
            raise BadLineError("no time stamp at the beginning")
        written, second, fraction, offset = match.groups()
        minute = self._minutes.get(written)
        if minute is None:
            minute = _local_minute(written)
            if len(self._minutes) >= _REMEMBERED_MINUTES:
                self._minutes.clear()
            self._minutes[written] = minute
        base_ms = self._clock.utc_ms(minute) if offset is None else (minute - _offset_minutes(offset)) * _MINUTE_MS
        return base_ms + int(second) * 1000 + (int((fraction + b"00")[:3]) if fraction else 0)


def _local_minute(written: bytes) -> int:
    """Return minutes since 1970 of `2026-11-21 12:00`, as written."""
    try:
        local = datetime.strptime(written.decode().replace("T", " "), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - local time
    except ValueError as error:
        raise BadLineError("the time stamp is not a time") from error
    return (local - _EPOCH) // timedelta(minutes=1)


def local_minute(line: bytes) -> int | None:
    """Return minutes since 1970 of a timestamp without an offset, as written, None for another line."""
    match = _TIMESTAMP.match(line)
    if match is None or match["offset"] is not None:
        return None
    try:
        return _local_minute(match["minute"])
    except BadLineError:
        return None


def clocks_go_back(zone: tzinfo, first_minute: int, last_minute: int) -> bool:
    """Check whether a zone's clocks go back between two times, or on a day beside them.

    The minutes are since 1970, local ones or in UTC: the days beside them make up for the difference.
    """
    days = range(first_minute // _MINUTES_PER_DAY - 1, last_minute // _MINUTES_PER_DAY + 3)
    offsets = [datetime.fromtimestamp(day * 86_400, zone).utcoffset() or timedelta() for day in days]
    return first_minute > last_minute or any(later < earlier for earlier, later in pairwise(offsets))


def needs_zone(head: bytes) -> bool:
    """Check whether the timestamps in a request log lack the zone, by its first bytes."""
    found = filter(None, map(_TIMESTAMP.match, head.splitlines()))
    return next((match["offset"] is None for match in found), False)


def _offset_minutes(offset: bytes) -> int:
    if offset == b"Z":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if hours >= 24 or minutes >= 60:
        raise BadLineError("the time stamp's offset is none")
    distance = hours * 60 + minutes
    return -distance if offset[:1] == b"-" else distance


_PRODUCE: Final = ApiKey.PRODUCE.value
_FETCH: Final = ApiKey.FETCH.value
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
_PRODUCE_TYPE: Final = QuotaType.PRODUCE.value
_FETCH_TYPE: Final = QuotaType.FETCH.value
_REQUEST_TYPE: Final = QuotaType.REQUEST.value
_MUTATION_TYPE: Final = QuotaType.CONTROLLER_MUTATION.value
BROKER_APIS: Final = frozenset(
    map(
        int,
        (
            ApiKey.LEADER_AND_ISR,
            ApiKey.STOP_REPLICA,
            ApiKey.UPDATE_METADATA,
            ApiKey.CONTROLLED_SHUTDOWN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
    )
)
"""Requests between brokers and controllers, exempt as such."""
_row: Final[Callable[[tuple[Any, ...]], EventRow]] = partial(tuple.__new__, EventRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOrigin:
    """What a request log does not record about itself."""

    cluster: str
    broker_id: int
    src_file: str


def parse_request_line(line: bytes, *, offset: int, timestamps: TimestampReader, origin: LogOrigin) -> EventRow | None:
    """Parse the event of a line.

    `offset` is the line's offset in its file.

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
        return _event(entry, timestamps.read_ms(line), offset, origin)
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

"""Kafka frames written out by hand, and a session to feed them to: small, and independent of the code under test."""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tests.support.core.virtual_clock import VirtualClock
from tests.support.frames.framing import framed

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.session.filters import NO_FILTERS, FilterFactory
from kafka_quotas.enforcement.session.frames import Begin, Decision, GatherBudget
from kafka_quotas.enforcement.session.identity import PrincipalTracker, SaslState
from kafka_quotas.enforcement.session.session import Session
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats

START_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)
CLIENT_ID = "app"
COSTS = CostModel(source="test", other=ApiCost(request_nanos=1_000_000))
"""A millisecond per request, whatever it is."""


def request(key: int, version: int, correlation_id: int, body: bytes, *, client_id: str = CLIENT_ID) -> bytes:
    """A request.

    `body` starts with the header's tag section where the version has one.
    """
    name = client_id.encode()
    return framed(struct.pack(">hhih", key, version, correlation_id, len(name)) + name + body)


def response(correlation_id: int, body: bytes) -> bytes:
    """A response.

    `body` starts with the header's tag section where the version has one.
    """
    return framed(struct.pack(">i", correlation_id) + body)


def produce(
    correlation_id: int, *, size: int = 1000, acks: int = 1, version: int = 7, client_id: str = CLIENT_ID
) -> bytes:
    """A Produce request whose frame is `size` bytes long, length field included.

    The records are zeros.
    """
    head = b"\x00\x00" if version >= 9 else b"\xff\xff" if version >= 3 else b""  # tags, null transactional id
    start = request(0, version, correlation_id, head + struct.pack(">hi", acks, 30000), client_id=client_id)
    return framed(start[4:] + bytes(size - len(start)))


def produce_response(correlation_id: int, *, version: int = 7, throttle_ms: int = 0) -> bytes:
    """The response to a Produce of one partition."""
    throttle = struct.pack(">i", throttle_ms)
    if version >= 9:
        partition = struct.pack(">ihqqq", 0, 0, 5, -1, 0) + b"\x01\x00\x00"  # no record errors, null message, tags
        return response(correlation_id, b"\x00\x02\x02t\x02" + partition + b"\x00" + throttle + b"\x00")
    partition = struct.pack(">ihq", 0, 0, 5)
    if version >= 2:
        partition += struct.pack(">q", -1)
    if version >= 5:
        partition += struct.pack(">q", 0)
    if version >= 8:
        partition += struct.pack(">ih", 0, -1)
    body = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 1) + partition
    return response(correlation_id, body + (throttle if version >= 1 else b""))


def fetch(
    correlation_id: int,
    *,
    version: int = 11,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    replica_id: int = -1,
    client_id: str = CLIENT_ID,
    wait_ms: int = 500,
) -> bytes:
    """A Fetch request without partitions."""
    head = b"\x00" if version >= 12 else b""
    replica = struct.pack(">i", replica_id) if version < 15 else b""
    limits = struct.pack(">ii", wait_ms, min_bytes) + (struct.pack(">i", max_bytes) if version >= 3 else b"")
    if version >= 12:
        rest = struct.pack(">bii", 0, 0, -1) + b"\x01\x01\x01"
        tags = b"\x01\x01\x0d" + struct.pack(">iq", replica_id, 0) + b"\x00" if replica_id >= 0 else b"\x00"
        return request(
            1, version, correlation_id, head + replica + limits + rest + (tags if version >= 15 else b"\x00")
        )
    rest = (b"\x00" if version >= 4 else b"") + (struct.pack(">ii", 0, -1) if version >= 7 else b"")
    rest += bytes(4) + (bytes(4) if version >= 7 else b"") + (bytes(2) if version >= 11 else b"")
    return request(1, version, correlation_id, replica + limits + rest, client_id=client_id)


@lru_cache(maxsize=32)
def fetch_response(correlation_id: int, *, size: int = 1000, version: int = 11, throttle_ms: int = 0) -> bytes:
    """A Fetch response whose frame is `size` bytes long, length field included.

    What is behind the head is filler.
    """
    head = b"\x00" if version >= 12 else b""
    throttle = struct.pack(">i", throttle_ms) if version >= 1 else b""
    start = response(correlation_id, head + throttle)
    return framed(start[4:] + b"\xee" * (size - len(start)))


def question(correlation_id: int, *, client_id: str = CLIENT_ID) -> bytes:
    """What the broker is asked before the first request of a client that counts: a Metadata of no topic."""
    return request(3, 1, correlation_id, bytes(4), client_id=client_id)


def question_answer(correlation_id: int, *, brokers: int = 1) -> bytes:
    """The answer to it: brokers, the controller and no topic.

    An error names no broker.
    """
    broker = struct.pack(">i", 1) + b"\x00\x04host" + struct.pack(">i", 9092) + b"\xff\xff"
    return response(correlation_id, struct.pack(">i", brokers) + brokers * broker + struct.pack(">ii", 1, 0))


def throttle_of(frame: bytes, offset: int = 8) -> int:
    """The throttle time at an offset of a frame.

    Negative offsets count from its end.
    """
    place = offset if offset >= 0 else len(frame) + offset
    value: int = struct.unpack_from(">i", frame, place)[0]
    return value


def set_limit(broker: BrokerQuotas, quota_type: QuotaType, entity: Entity, limit: float | None) -> None:
    """Set the limit of an entity, None to remove it, as a change of the store does."""
    broker.manager(quota_type).limits.update(entity, limit)
    broker.limits_changed((quota_type,))


class Pair:
    """A session with its clock: what is fed comes out of `upstream` and `client`, as far as it may."""

    def __init__(
        self,
        *,
        quotas: Mapping[QuotaType, float] | None = None,
        rules: EnforcementRules | None = None,
        entity: Entity | None = None,
        broker: BrokerQuotas | None = None,
        on_charge: OnCharge | None = None,
        model: CostModel = COSTS,
        factories: Mapping[int, FilterFactory] = NO_FILTERS,
        has_topics: bool = False,
        is_fast: bool = True,
        is_served: bool = True,
        gathering: GatherBudget | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are those of the rules, unless these are given.

        `has_topics` says that requests of topics are dealt with whole, for broker 1.

        `is_served` says that the broker has shown already that it serves the client, who has no need for SASL.

        Without `is_fast` every request is parsed, whatever the one before it was.
        """
        self.is_fast = is_fast
        self.rules = rules or EnforcementRules(**{"window": WINDOW, **settings})
        self.broker = broker or QuotaRegistry(self.rules.window, policies=self.rules.policies).broker(None)
        for quota_type, limit in (quotas or {}).items():
            set_limit(self.broker, quota_type, entity or Entity.of(client_id=CLIENT_ID), limit)
        self.notices: list[LogEvent] = []
        self.counters = Counters()
        self.throttle_stats = ThrottleStats(self.notices.append)
        self.topics = TopicFilters(
            self.rules, counters=self.counters, notify=self.notices.append, clock=VirtualClock(START_MS)
        )
        self.brokers_named: list[tuple[int, str, int]] = []
        self.tracker = PrincipalTracker(rules=self.rules, counters=self.counters, notify=self.notices.append)
        if is_served:
            self.tracker.state = SaslState.COMPLETE
        self.session = Session(
            quotas=self.broker,
            tracker=self.tracker,
            rules=self.rules,
            translate=self._translate,
            throttle_stats=self.throttle_stats,
            counters=self.counters,
            costs=lambda: model,
            on_charge=on_charge,
            factories=self.topics.factories(1, self.broker) if has_topics else factories,
            gathering=gathering,
        )
        self._has_room = False
        self.session.answers.on_room = self._found_room
        if not is_fast:
            self.session.state.requests.begin = self._begin_without_template(self.session.state.requests.begin)
        self.now_ms = START_MS
        self.upstream = b""
        self.client = b""

    def send(self, data: bytes) -> bytes:
        """What reached the broker of these bytes of the client, and of what had waited."""
        before = len(self.upstream)
        if not self.is_fast:
            self.session.state.requests.feed(memoryview(data), self.now_ms)
        elif self.session.receive_from_client(data, self.now_ms):
            self.session.state.to_upstream.append(data)
        self._collect()
        return self.upstream[before:]

    def answer(self, data: bytes) -> bytes:
        """What reached the client of these bytes of the broker, and of what had waited."""
        before = len(self.client)
        if not self.is_fast:
            self.session.state.responses.feed(memoryview(data), self.now_ms)
        elif (passed := self.session.pass_from_broker(data)) == len(data):
            self.session.state.to_client.append(data)
        else:
            self.session.receive_from_broker(data, self.now_ms, passed)
        self._collect()
        return self.client[before:]

    def exchange(self, sent: bytes, answered: bytes) -> bytes:
        """What reached the client of a response, after its request was sent."""
        self.send(sent)
        return self.answer(answered)

    def advance(self, delta_ms: int) -> bytes:
        """What reached the broker when so much time had passed and the session was woken, if it wanted to be."""
        before = len(self.upstream)
        self.now_ms += delta_ms
        if self.session.state.wake_at_ms is not None and self.session.state.wake_at_ms <= self.now_ms:
            self.session.state.wake(self.now_ms)
        self._collect()
        return self.upstream[before:]

    def _begin_without_template(self, begin: Begin) -> Begin:
        def begin_parsed(chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
            self.session._requests.last = None
            return begin(chunk, offset, now_ms)

        return begin_parsed

    def _translate(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        self.brokers_named.append((node_id, host, port))
        return "127.0.0.1", 20_000 + node_id

    def _collect(self) -> None:
        """Take what came out, and do what the shell does until nothing is left to do."""
        state = self.session.state
        while True:
            self.upstream += b"".join(map(bytes, state.to_upstream))
            self.client += b"".join(map(bytes, state.to_client))
            state.to_upstream.clear()
            state.to_client.clear()
            if state.is_working:
                self.session.work(self.now_ms)
            elif state.holds_room and not state.client_is_full:
                self.session.return_room(self.now_ms)
            elif self._has_room:
                self._has_room = False
                state.resume_response(self.now_ms)
            else:
                return

    def _found_room(self) -> None:
        self._has_room = True

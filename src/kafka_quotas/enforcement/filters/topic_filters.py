"""The topic filters of a daemon: the factories for each broker's connections, and the state that they share.

The filters are for requests that create, grow, delete, name and fill topics. All brokers of a cluster share one
`TopicCache`; each broker has quotas and thresholds of its own.

The topic of a fleet's reports may be read by clients and not changed: a report decides on limits.
A Produce for it is refused whole. In any other request that would change it the topic has a name that none can have,
so the broker refuses that part by itself, in whichever way the API has; its response has the real name again. Requests
that only brokers send (`CLUSTER_ACTION`) are the broker's to refuse.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import InvalidQuotaError, ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, Mutation
from kafka_quotas.enforcement.config.rules import AutoCreate, EnforcementRules
from kafka_quotas.enforcement.filters.mutation_filter import (
    AutoCreations,
    metadata_filter,
    mutation_filter,
    streams_filter,
)
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry, threshold_filter
from kafka_quotas.enforcement.filters.topic_cache import AskingFilter, TopicCache
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.session.filters import (
    Charge,
    FilteredRequest,
    FilterFactory,
    PartialProduce,
    ProduceProtection,
    RequestFilter,
    SequenceFilter,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.session.in_flight import PRODUCE
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.wire.codec.encoding import MAX_ELEMENTS
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import API_TABLE, ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.broker_addresses import lengthened_varint
from kafka_quotas.wire.proxying.produce import TOPIC_ID_SINCE, ProduceData, only_topic, parse_produce
from kafka_quotas.wire.proxying.topics import KnownTopic, parse_mutation

_CHANGING: Final = (
    "PRODUCE CREATE_TOPICS DELETE_TOPICS DELETE_RECORDS ADD_PARTITIONS_TO_TXN ALTER_CONFIGS ALTER_REPLICA_LOG_DIRS "
    "CREATE_PARTITIONS ELECT_LEADERS INCREMENTAL_ALTER_CONFIGS ALTER_PARTITION_REASSIGNMENTS"
)
CHANGING: Final = frozenset(ApiKey[name] for name in _CHANGING.split())
"""The APIs by which a client writes to, deletes or alters a topic that it names."""
LOG_EVERY_MS: Final = 60_000
_REFUSED: Final = "clients can't write to the topic of the daemons' fleet"
_MAX_VARINT_BYTES: Final = 5


class ProtectedTopic:
    """The topic, how requests name it, and what is known of attempts to change it."""

    def __init__(self, name: str, *, counters: Counters, notify: Notify) -> None:
        self.name = name
        self._counters = counters
        self._notify = notify
        self._logged_ms: int | None = None
        content = name.encode()
        self.shown, self.hidden = content, b"!" + content[1:]
        """The name, and one of the same length that no topic can have."""
        # Readers take a length that is padded to five bytes as well (KIP-482).
        shortest = 1 if len(content) + 1 < 0x80 else 2
        padded = [lengthened_varint(len(content) + 1, size) for size in range(shortest, _MAX_VARINT_BYTES + 1)]
        self._compact = _strings(content, padded)
        self._classic = _strings(content, [len(content).to_bytes(2, "big")])

    def hide(self, frame: bytearray, start: int, *, is_compact: bool) -> bool:
        """Replace each string that is the name from an offset on, and return whether there was one."""
        if frame.count(self.shown, start) > MAX_ELEMENTS:
            raise ProtocolError("a request names one topic too often")
        body, count = (self._compact if is_compact else self._classic).subn(self.hidden, frame[start:])
        frame[start:] = body
        return count > 0

    def refused(self, request: FilteredRequest, now_ms: int) -> None:
        """Count a request that would have changed the topic, and log one now and then."""
        self._counters.fleet_topic_refusals += 1
        if self._logged_ms is not None and now_ms - self._logged_ms < LOG_EVERY_MS:
            return
        self._logged_ms = now_ms
        client, api = request.client, API_TABLE[request.api_key].name
        who = {} if client is None else {"user": client.user, "client_id": client.client_id}
        event = "a client may not change the fleet's topic"
        self._notify(LogEvent.of(event, LogLevel.WARNING, topic=self.name, api=api, **who))


def _strings(content: bytes, lengths: Sequence[bytes]) -> re.Pattern[bytes]:
    """Return a pattern of the strings of this content, with one of these lengths before them."""
    # The content comes first: searching for constant bytes is what makes it fast.
    whole = b"|".join(b"(?<=" + re.escape(length + content) + b")" for length in lengths)
    return re.compile(re.escape(content) + b"(?:" + whole + b")")


class ProtectedTopicFilter(AskingFilter):
    """The check of one request, before its other filter (`inner`) sees it."""

    def __init__(self, header: RequestHeader, inner: RequestFilter | None, made_by: "ProtectedTopicFactory") -> None:
        super().__init__(header)
        self._inner = inner
        self._topic, self._cache, self._sequences = made_by.topic, made_by.cache, made_by.sequences
        self._hidden: dict[bytes, bytes] = {}
        self._is_checked = False
        self._produce: ProduceData | None = None
        if inner is not None:
            self.charges_refused = inner.charges_refused

    def read(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        # Most requests for several topics don't have its name anywhere: finding that out costs a fraction of parsing.
        header = self._header
        is_named = header.api_key != PRODUCE or header.api_version >= TOPIC_ID_SINCE
        self._is_checked = not is_named and frame.find(self._topic.shown, header.end) < 0
        if not self._is_checked:  # some topics may only be known by their ids
            self.ask([each for each in self._ids(frame) if self._cache.name_of(each) is None])

    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        if not self._is_checked:
            self._is_checked = True
            if self._header.api_key == PRODUCE:
                refused = self._refused_produce(frame, request, now_ms)
                if refused is not None:
                    return refused
            else:
                self._hide(frame, request, now_ms)
        return Verdict(frame) if self._inner is None else self._inner.on_request(frame, request, now_ms)

    def on_response_to_own(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Generator[None, None, None]:
        if not self._is_checked:
            yield from super().on_response_to_own(frame, request, now_ms)
        elif self._inner is not None and (work := self._inner.on_response_to_own(frame, request, now_ms)) is not None:
            yield from work

    def answered(self, topics: tuple[KnownTopic, ...], now_ms: int) -> None:
        self._cache.learn(topics)

    def on_response(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Buffer | Generator[None, None, Buffer]:
        response = frame if self._inner is None else self._inner.on_response(frame, request, now_ms)
        return self._shown(response) if self._hidden else response

    def _shown(self, response: Buffer | Generator[None, None, Buffer]) -> Generator[None, None, Buffer]:
        """Return a response with the names and ids that stood in the request."""
        changed = bytes((yield from response) if isinstance(response, Generator) else response)
        for hidden, shown in self._hidden.items():
            changed = changed.replace(hidden, shown)
        return changed

    def charges(self) -> Sequence[Charge]:
        return () if self._inner is None else self._inner.charges()

    def _hide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        header = self._header
        for topic_id in self._ids(frame):
            if self._name_of(topic_id) == self._topic.name:
                unknown = bytes(each ^ 0xFF for each in topic_id)
                self._hidden[unknown] = topic_id
                frame[:] = frame.replace(topic_id, unknown)
        is_compact = API_TABLE[header.api_key].is_flexible(header.api_version)
        if self._topic.hide(frame, header.end, is_compact=is_compact):
            self._hidden[self._topic.hidden] = self._topic.shown
        if self._hidden:
            self._topic.refused(request, now_ms)

    def _name_of(self, topic: str | bytes) -> str | None:
        if isinstance(topic, str):
            return topic
        # The cache may be full, and what the broker has just answered counts all the same.
        known = self._known.get(topic)
        return self._cache.name_of(topic) if known is None else known.name

    def _ids(self, frame: bytearray) -> list[bytes]:
        key = self._header.api_key
        if key == PRODUCE:
            self._produce = parse_produce(frame, self._header)
            topics: Sequence[object] = [data.topic for data in self._produce.topics]
        else:
            topics = parse_mutation(frame, self._header).keys if key == ApiKey.DELETE_TOPICS else ()
        return [topic for topic in topics if isinstance(topic, bytes)]

    def _refused_produce(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict | None:
        data = self._produce or parse_produce(frame, self._header)
        if self._topic.name not in (self._name_of(each.topic) for each in data.topics):
            return None
        self._topic.refused(request, now_ms)
        partial = PartialProduce(self._header, self._sequences)
        for key in data.order:
            partial.refuse(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _REFUSED)
        return partial.verdict(frame, data, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTopicFactory(ProduceProtection):
    """The factory of the checks of one API at one broker."""

    topic: ProtectedTopic
    inner: FilterFactory | None
    cache: TopicCache
    sequences: ProducerSequences

    @property
    def is_active(self) -> bool:
        return True

    def harmless_until(self, chunk: memoryview, header: RequestHeader) -> int | None:
        found = only_topic(chunk, header)
        if found is None:
            return None
        topic, end = found
        name = topic if isinstance(topic, str) else self.cache.name_of(topic)
        return None if name is None or name == self.topic.name else end

    def make_filter(self, request: FilteredRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | None:
        inner: RequestFilter | None = None
        if self.inner is not None and self.inner.is_active:
            inner = self.inner.make_filter(request, chunk, header)
        if header.api_key != PRODUCE:
            check_topic_request(header)
        elif self.harmless_until(chunk, header) is not None:
            return inner
        elif inner is None:
            request.blocks_next = False
            if request.client is not None and request.client.refuses:
                inner = SequenceFilter(header, self.sequences)
        return ProtectedTopicFilter(header, inner, self)


@dataclass(frozen=True, slots=True)
class TopicFilterFactory:
    """The factory of the filters of one API for one broker's connections."""

    active: Callable[[], bool]
    make: Callable[[FilteredRequest, RequestHeader], RequestFilter | None]

    @property
    def is_active(self) -> bool:
        return self.active()

    def make_filter(self, request: FilteredRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | None:
        return self.make(request, header)


class TopicFilters:
    """The filter factories of all brokers, and the thresholds from the store and the policy file."""

    def __init__(self, rules: EnforcementRules, *, counters: Counters, notify: Notify, clock: Clock) -> None:
        self._rules = rules
        self._counters = counters
        self._notify = notify
        self._cache = TopicCache()
        self._factories: dict[BrokerQuotas, Mapping[int, FilterFactory]] = {}
        self._auto_creations = AutoCreations(self._cache, counters)
        topic = rules.fleet_topic
        self._protected = None if topic is None else ProtectedTopic(topic, counters=counters, notify=notify)
        self.thresholds = ThresholdRegistry(cache=self._cache, counters=counters, notify=notify, clock=clock)

    def factories(self, node_id: NodeId, quotas: BrokerQuotas) -> Mapping[int, FilterFactory]:
        """Return the filter factories by API key, which all connections to a broker share."""
        factories = self._factories.get(quotas)
        if factories is None:
            factories = self._factories[quotas] = self._new_factories(node_id, quotas)
        return factories

    def apply_store(self, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Put a store's thresholds in force, or log an error if they contradict those of the policy file."""
        try:
            self.thresholds.apply_store(entries)
        except InvalidQuotaError as error:
            self._notify(LogEvent.failure("thresholds can't be used; the earlier ones stay in force", error))

    def _new_factories(self, node_id: NodeId, quotas: BrokerQuotas) -> Mapping[int, FilterFactory]:
        rules, auto_creations, sequences = self._rules, self._auto_creations, quotas.sequences
        rule, thresholds = rules.auto_create, self.thresholds
        broker = thresholds.broker(node_id)

        def is_metadata_filtered() -> bool:
            counts = rule is AutoCreate.COUNT and quotas.limits_mutations
            return counts or rule is AutoCreate.FORBID or thresholds.is_active

        changes = TopicFilterFactory(
            lambda: quotas.limits_mutations, partial(mutation_filter, rules=rules, auto_creations=auto_creations)
        )
        metadata = partial(
            metadata_filter, rule=rule, learns=lambda: thresholds.is_active, auto_creations=auto_creations
        )
        factories: dict[int, FilterFactory] = {
            **{key: changes for key, row in QUOTA_CHARGES.items() if row.mutation is Mutation.REQUESTED},
            ApiKey.METADATA.value: TopicFilterFactory(is_metadata_filtered, metadata),
            ApiKey.STREAMS_GROUP_HEARTBEAT.value: TopicFilterFactory(
                lambda: quotas.limits_mutations and rule is not AutoCreate.PASS,
                partial(streams_filter, auto_creations=auto_creations),
            ),
            ApiKey.PRODUCE.value: TopicFilterFactory(
                lambda: broker.is_active,
                partial(threshold_filter, thresholds=broker, error=rules.threshold_error, sequences=sequences),
            ),
        }
        if self._protected is not None:
            for key in CHANGING:
                factories[key.value] = ProtectedTopicFactory(
                    topic=self._protected, inner=factories.get(key), cache=self._cache, sequences=sequences
                )
        return factories

"""The topic thresholds in force at each broker, and the filter of Produce requests that rejects data over them.

The filter cuts the rejected partitions out of the request and adds their errors to the response. Only data that the
broker accepts counts as intake of a topic, so names that a client made up change nothing. A batch after a rejected one
is refused as out of order, see `producer_sequences`.

With a total threshold every topic has a threshold, its own or its share, and the filter sees all Produce requests of
the broker. Without one nothing is ever rejected, and all requests stream.

**Source:** "Broker-side quota V1".
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision, TopicThresholds
from kafka_quotas.enforcement.config.rules import ThresholdError
from kafka_quotas.enforcement.filters.topic_cache import AskingFilter, TopicCache
from kafka_quotas.enforcement.quotas.producer_sequences import ClientName, ProducerSequences
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.session.filters import (
    FilteredRequest,
    PartialProduce,
    RequestFilter,
    Verdict,
    client_name,
)
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.wire.codec.skip import SLICE, Buffer
from kafka_quotas.wire.protocol.api_table import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.produce import (
    PartitionKey,
    ProduceData,
    ProducedPartition,
    ProducedTopic,
    TopicData,
    parse_produce,
    partition_results,
)
from kafka_quotas.wire.proxying.topics import KnownTopic, iter_topics

LOG_EVERY_MS: Final = 5_000
"""Interval of log events about one topic's rejected data; the first one is logged at once, later ones sum up."""
ASK_EVERY_MS: Final = 60_000
"""Interval of questions which topics the broker leads, sent before a client's Produce."""
MAX_LOGGED_TOPICS: Final = 10_000
"""Most topics with rejected data that are kept for the log."""


@dataclass(slots=True)
class _Rejected:
    bytes: int = 0
    batches: int = 0
    logged_ms: int | None = None


class BrokerThresholds:
    """The thresholds of one broker, and its decisions about data."""

    def __init__(self, registry: "ThresholdRegistry", broker: str | None) -> None:
        self.broker = broker
        """Node id as text, None while it isn't known."""
        self.is_active = False
        """Whether the broker has a total, without which nothing is rejected."""
        self.cache, self.counters, self._notify = registry.cache, registry.counters, registry.notify
        self.topics = TopicThresholds(registry.clock.now_ms())
        """The intake and the thresholds of topics; `record` counts what the broker accepted."""
        self._asked_ms: int | None = None
        self._cache_version = -1
        self._rejected: dict[str, _Rejected] = {}

    def apply(self, settings: ThresholdSettings) -> None:
        """Put thresholds in force, and keep the measured rates."""
        total = settings.total_of(self.broker)
        self.topics.configure(total=total, topics=settings.topics)
        self.is_active = total is not None

    def asks_for_topics(self, now_ms: int) -> bool:
        """Return whether to ask the broker for all topics now, at most once in `ASK_EVERY_MS`."""
        if self._asked_ms is not None and now_ms - self._asked_ms < ASK_EVERY_MS:
            return False
        self._asked_ms = now_ms
        return True

    def decide(self, topic: str, now_ms: int) -> ThresholdDecision:
        """Decide whether to accept data for a topic, which counts only once it is recorded."""
        self._follow_cache()
        return self.topics.look(topic, now_ms)

    def is_over_total(self, now_ms: int) -> bool:
        """Return whether the broker takes in more than its total, by which topics may be over theirs."""
        self._follow_cache()
        return self.topics.is_over_total(now_ms)

    def rejected(self, decision: ThresholdDecision, size: int, now_ms: int, *, dropped: bool) -> None:
        """Count and log a batch that was rejected (`dropped`), or would be but for shadow mode."""
        if dropped:
            self.counters.threshold_rejected_bytes += size
            self.counters.threshold_rejected_batches += 1
        else:
            self.counters.threshold_shadowed_bytes += size
        topic = self._rejected.get(decision.topic)
        if topic is None:
            while len(self._rejected) >= MAX_LOGGED_TOPICS:
                self._rejected.pop(next(iter(self._rejected)))
            topic = self._rejected[decision.topic] = _Rejected()
        topic.bytes += size
        topic.batches += 1
        if topic.logged_ms is None or now_ms - topic.logged_ms >= LOG_EVERY_MS:
            event = "data rejected: topic over its threshold" if dropped else "data would be rejected (shadow mode)"
            what = {"topic": decision.topic, "broker": self.broker or "bootstrap", "reason": decision.reason}
            counts = {"bytes": topic.bytes, "batches": topic.batches}
            self._notify(LogEvent.of(event, LogLevel.WARNING, **what, **counts))
            self._rejected[decision.topic] = _Rejected(logged_ms=now_ms)

    def rates(self, now_ms: int) -> dict[str, tuple[float, float | None]]:
        """Return rate and threshold (bytes/s) of each topic with data, the total under the empty name."""
        thresholds = self.topics
        return {
            topic: (rate, thresholds.threshold(topic) if topic else thresholds.total)
            for topic, rate in thresholds.rates(now_ms).items()
        }

    def _follow_cache(self) -> None:
        if self.cache.version != self._cache_version and self.broker is not None:
            self._cache_version = self.cache.version
            self.topics.lead(self.cache.led_by(int(self.broker)))


class ThresholdRegistry:
    """The thresholds in force at all brokers, including those that appear later."""

    def __init__(self, *, cache: TopicCache, counters: Counters, notify: Notify, clock: Clock) -> None:
        self.cache, self.counters, self.notify, self.clock = cache, counters, notify, clock
        self._store = self._file = self._settings = ThresholdSettings()
        self.brokers: dict[NodeId, BrokerThresholds] = {}

    @property
    def is_active(self) -> bool:
        """Whether any broker has thresholds, which count with a total alone."""
        return bool(self._settings.totals)

    def broker(self, node_id: NodeId) -> BrokerThresholds:
        """Return the thresholds of a broker, and make them at its first mention."""
        thresholds = self.brokers.get(node_id)
        if thresholds is None:
            name = None if node_id is None or node_id < 0 else str(node_id)
            thresholds = self.brokers[node_id] = BrokerThresholds(self, name)
            thresholds.apply(self._settings)
        return thresholds

    def name_bootstrap(self, node_id: int, placeholder: NodeId = None) -> None:
        """Move the thresholds and rates of a placeholder to the node id of its bootstrap server."""
        if placeholder in self.brokers and node_id not in self.brokers:
            thresholds = self.brokers[node_id] = self.brokers.pop(placeholder)
            thresholds.broker = str(node_id)
            thresholds.apply(self._settings)

    def check_file(self, settings: ThresholdSettings) -> None:
        """Check that a policy file's thresholds agree with those of the store."""
        _merged(self._store, settings)

    def apply_store(self, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Put the thresholds of a store in force, before those of the file, or raise as `check_file`."""
        self._apply(ThresholdSettings.of(entries), self._file)

    def apply_file(self, settings: ThresholdSettings) -> None:
        """Put the thresholds of the policy file in force, or raise as `check_file` and change none of them."""
        self._apply(self._store, settings)

    def _apply(self, store: ThresholdSettings, file: ThresholdSettings) -> None:
        settings = _merged(store, file)
        self._store, self._file, self._settings = store, file, settings
        for thresholds in self.brokers.values():
            thresholds.apply(settings)


def _merged(store: ThresholdSettings, file: ThresholdSettings) -> ThresholdSettings:
    return ThresholdSettings(topics={**file.topics, **store.topics}, totals={**file.totals, **store.totals})


MAX_ASKED: Final = 100
"""Most unknown topics of one request that the broker is asked about."""
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ThresholdFilter(AskingFilter):
    """The enforcement of thresholds on one Produce request, which rejects nothing in shadow mode."""

    def __init__(
        self,
        header: RequestHeader,
        thresholds: BrokerThresholds,
        *,
        error: ThresholdError,
        sequences: ProducerSequences,
        is_shadow: bool,
    ) -> None:
        super().__init__(header)
        self._is_shadow = is_shadow
        self._thresholds = thresholds
        self._error, self._sequences = error, sequences
        self._counters, self._cache = thresholds.counters, thresholds.cache
        self._client: ClientName = ("", "")
        self._data: ProduceData | None = None
        self._asks_for_all = False
        self._sizes: dict[PartitionKey, tuple[str, int]] = {}
        self._partial = PartialProduce(self._header, self._sequences)

    def read(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        self._cache.learn_more()
        self._client = client_name(request)
        data = self._data = parse_produce(frame, self._header)
        # Without knowing what this broker leads, a topic's share of the total can't be computed.
        if self._thresholds.asks_for_topics(now_ms):
            self._asks_for_all = True
            self.ask_all()
        self.ask(self._unknown(data, request))

    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        data = self._data
        assert data is not None
        is_over = self._thresholds.is_over_total(now_ms)
        for topic in data.topics:
            self._decide(topic, now_ms, is_over=is_over)
        # Without a response (acks=0) nothing reports what the broker accepted: it does for topics that exist.
        if not request.expects_response:
            for name, size in self._sizes.values():
                if self._cache.knows(name):
                    self._thresholds.topics.record(name, size, now_ms)
        return self._partial.verdict(frame, data, request)

    def on_response_to_own(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Generator[None, None, None]:
        if not self._asks_for_all:
            yield from super().on_response_to_own(frame, request, now_ms)
            return
        # All topics of a cluster may be a hundred thousand: the requests after this one read the rest of them.
        self._asks_for_all = False
        self._cache.learn_in_slices(iter_topics(self._asked_version, frame))

    def answered(self, topics: tuple[KnownTopic, ...], now_ms: int) -> None:
        self._cache.learn(topics)

    def on_response(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Generator[None, None, Buffer]:
        # Only what the broker accepted is intake of a topic: a batch that it refused comes again, or never.
        for number, result in enumerate(partition_results(request.api_version, frame)):
            if number % SLICE == SLICE - 1:
                yield
            topic, size = self._sizes.get((result.topic, result.partition), ("", 0))
            if result.error_code == ErrorCode.NONE and size:
                self._thresholds.topics.record(topic, size, now_ms)
            elif result.error_code in TOO_LARGE:
                self._counters.oversized_bytes += size
        return self._partial.response(frame, request)

    def _unknown(self, data: ProduceData, request: FilteredRequest) -> list[ProducedTopic]:
        """Return the topics to ask the broker about, by their data, as a client may name any others."""
        # With a response the broker says which of the names are topics.
        names_matter = not request.expects_response
        unknown = [
            each
            for each in data.topics
            if (names_matter or not isinstance(each.topic, str)) and not self._cache.knows(each.topic)
        ]
        largest = nlargest(MAX_ASKED, unknown, key=lambda each: sum(partition.size for partition in each.partitions))
        return [each.topic for each in largest]

    def _decide(self, topic: TopicData[ProducedPartition], now_ms: int, *, is_over: bool) -> None:
        name = topic.topic if isinstance(topic.topic, str) else self._cache.name_of(topic.topic)
        if name is None:
            return  # the broker does not know it either
        decision = self._thresholds.decide(name, now_ms) if is_over else None
        for partition in topic.partitions:
            key = (topic.topic, partition.partition)
            if not self._is_rejected(key, partition, decision, now_ms):
                self._sizes[key] = (name, partition.size)

    def _is_rejected(
        self, key: PartitionKey, partition: ProducedPartition, decision: ThresholdDecision | None, now_ms: int
    ) -> bool:
        batch, sequences = partition.sequenced, self._sequences
        if self._partial.follows_refused(self._client, key, batch, now_ms):
            return True
        if decision is not None and not decision.admitted:
            self._thresholds.rejected(decision, partition.size, now_ms, dropped=not self._is_shadow)
            if not self._is_shadow:
                self._partial.refuse(key, self._error.code, decision.reason)
                if batch is not None:
                    sequences.refused(self._client, key, batch, now_ms)
                return True
        if batch is not None:
            sequences.admitted(self._client, key, batch)
        return False


MAX_GATHERED_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Longest Produce that is gathered: the longest that a broker accepts by default."""


def threshold_filter(
    request: FilteredRequest,
    header: RequestHeader,
    *,
    thresholds: BrokerThresholds,
    error: ThresholdError,
    sequences: ProducerSequences,
) -> RequestFilter:
    """Return the filter of a Produce to a broker with thresholds."""
    if header.frame_length > MAX_GATHERED_REQUEST_BYTES:
        raise ProtocolError(
            f"a Produce announces {header.frame_length} bytes, {MAX_GATHERED_REQUEST_BYTES} are the limit where "
            "topics have thresholds"
        )
    # A threshold sets no throttle time, so the next request need not wait for the response.
    request.blocks_next = False
    is_shadow = request.client is not None and request.client.is_shadow
    return ThresholdFilter(header, thresholds, error=error, sequences=sequences, is_shadow=is_shadow)

"""The topic thresholds in force at each broker, and the counts and log of the data that they reject."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.threshold import ThresholdSettings
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision, TopicThresholds
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.enforcement.topics.topic_cache import TopicCache

LOG_EVERY_MS: Final = 5_000
"""Interval of log events about one topic's rejected data; the first one is logged at once, later ones sum up."""
ASK_EVERY_MS: Final = 60_000
"""Interval of questions which topics the broker leads, sent before a client's Produce."""
MAX_LOGGED_TOPICS: Final = 10_000
"""Most topics with rejected data that are kept for the log."""


@dataclass(slots=True)
class _Rejected:
    """The rejected data of one topic since its last log event."""

    bytes: int = 0
    batches: int = 0
    logged_ms: int | None = None
    """Time of the last log event, None without one."""


class BrokerThresholds:
    """The thresholds of one broker, and its decisions about data."""

    def __init__(
        self, broker: str | None, *, cache: TopicCache, counters: Counters, notify: Notify, now_ms: int
    ) -> None:
        self.broker = broker
        """Node id as text, None while it isn't known."""
        self.is_active = False
        """Whether the broker has a total, without which nothing is rejected."""
        self._cache = cache
        self._counters = counters
        self._notify = notify
        self.topics = TopicThresholds(now_ms)
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

    def count_oversized(self, size: int) -> None:
        """Count the bytes of a batch that the broker refused as too large."""
        self._counters.oversized_bytes += size

    def rejected(self, decision: ThresholdDecision, size: int, now_ms: int, *, dropped: bool) -> None:
        """Count and log a rejected batch.

        Args:
            decision: The decision that rejected it.
            size: Bytes of the batch.
            now_ms: The time of the decision.
            dropped: Whether it was rejected; False for a client in shadow mode.
        """
        counters = self._counters
        if dropped:
            counters.threshold_rejected_bytes += size
            counters.threshold_rejected_batches += 1
        else:
            counters.threshold_shadowed_bytes += size
        topic = self._rejected.get(decision.topic)
        if topic is None:
            while len(self._rejected) >= MAX_LOGGED_TOPICS:
                self._rejected.pop(next(iter(self._rejected)))
            topic = self._rejected[decision.topic] = _Rejected()
        topic.bytes += size
        topic.batches += 1
        if topic.logged_ms is None or now_ms - topic.logged_ms >= LOG_EVERY_MS:
            self._log(decision, topic, dropped=dropped)
            self._rejected[decision.topic] = _Rejected(logged_ms=now_ms)

    def rates(self, now_ms: int) -> dict[str, tuple[float, float | None]]:
        """Return rate and threshold (bytes/s) of each topic with data, the total under the empty name."""
        thresholds = self.topics
        return {
            topic: (rate, thresholds.threshold(topic) if topic else thresholds.total)
            for topic, rate in thresholds.rates(now_ms).items()
        }

    def snapshots(self, now_ms: int) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the state of each active meter by topic, with that of the total under the empty name."""
        if self.is_active:
            yield from self.topics.snapshots(now_ms)

    def restore(self, topic: str, figures: tuple[float, ...], *, shift_ms: int, now_ms: int) -> None:
        """Restore a topic's meter from the state of an earlier one.

        Args:
            topic: The topic's name, empty for the meter of the total.
            figures: The state, as `snapshots` yields it.
            shift_ms: Time to add to the state's times.
            now_ms: The time of the restore.

        Raises:
            ValueError: The numbers are no state of a meter.
        """
        self.topics.restore(topic, figures, shift_ms, now_ms)

    def _follow_cache(self) -> None:
        """Update the topics that this broker leads, if the topic cache has changed."""
        if self._cache.version != self._cache_version and self.broker is not None:
            self._cache_version = self._cache.version
            self.topics.lead(self._cache.led_by(int(self.broker)))

    def _log(self, decision: ThresholdDecision, topic: _Rejected, *, dropped: bool) -> None:
        fields: dict[str, str | float] = {
            "topic": decision.topic,
            "broker": self.broker or "bootstrap",
            "reason": decision.reason,
            "bytes": topic.bytes,
            "batches": topic.batches,
        }
        event = "data rejected: topic over its threshold" if dropped else "data would be rejected (shadow mode)"
        self._notify(LogEvent(event=event, level=LogLevel.WARNING, fields=fields))


class ThresholdRegistry:
    """The thresholds in force at all brokers, including those that appear later."""

    def __init__(self, *, cache: TopicCache, counters: Counters, notify: Notify, clock: Clock) -> None:
        self._cache = cache
        self._counters = counters
        self._notify = notify
        self._clock = clock
        self._store = self._file = self._settings = ThresholdSettings()
        self.brokers: dict[NodeId, BrokerThresholds] = {}
        """The thresholds of each broker by node id."""

    @property
    def is_active(self) -> bool:
        """Whether any broker has thresholds."""
        return not self._settings.is_empty

    def broker(self, node_id: NodeId) -> BrokerThresholds:
        """Return the thresholds of a broker, and make them at its first mention."""
        thresholds = self.brokers.get(node_id)
        if thresholds is None:
            thresholds = self.brokers[node_id] = BrokerThresholds(
                None if node_id is None or node_id < 0 else str(node_id),
                cache=self._cache,
                counters=self._counters,
                notify=self._notify,
                now_ms=self._clock.now_ms(),
            )
            thresholds.apply(self._settings)
        return thresholds

    def name_bootstrap(self, node_id: int, placeholder: NodeId = None) -> None:
        """Move the thresholds and rates of a placeholder to the node id of its bootstrap server."""
        if placeholder in self.brokers and node_id not in self.brokers:
            thresholds = self.brokers[node_id] = self.brokers.pop(placeholder)
            thresholds.broker = str(node_id)
            thresholds.apply(self._settings)

    def check_file(self, settings: ThresholdSettings) -> None:
        """Check that a policy file's thresholds agree with those of the store.

        Raises:
            InvalidQuotaError: The thresholds of the topics, with the store's, add up to more than a broker's total.
        """
        _merged(self._store, settings)

    def apply_store(self, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Put the thresholds among a store's entries in force, which override those of the policy file.

        Raises:
            InvalidQuotaError: The thresholds of the topics add up to more than a broker's total; none of them change.
        """
        self._apply(ThresholdSettings.of(entries), self._file)

    def apply_file(self, settings: ThresholdSettings) -> None:
        """Put the thresholds of the policy file in force, which those of the store override.

        Raises:
            InvalidQuotaError: The thresholds of the topics add up to more than a broker's total; none of them change.
        """
        self._apply(self._store, settings)

    def _apply(self, store: ThresholdSettings, file: ThresholdSettings) -> None:
        settings = _merged(store, file)
        self._store, self._file, self._settings = store, file, settings
        for thresholds in self.brokers.values():
            thresholds.apply(settings)


def _merged(store: ThresholdSettings, file: ThresholdSettings) -> ThresholdSettings:
    """Merge the thresholds of the store and the policy file, where the store's win."""
    settings = ThresholdSettings(topics={**file.topics, **store.topics}, totals={**file.totals, **store.totals})
    refused = settings.refusal()
    if refused is not None:
        raise refused
    return settings

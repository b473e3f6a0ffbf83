"""The thresholds of one broker in force, and what was rejected because of them.

The thresholds of every broker, and what is known of the topics that they are on.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.threshold import ThresholdSettings
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision, TopicThresholds
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.enforcement.topics.topic_cache import TopicCache

SAY_EVERY_MS: Final = 5_000
"""A topic whose data is rejected is named in the log at once, and then at most so often, with what came together."""
ASK_EVERY_MS: Final = 60_000
"""How often the broker is asked which topics it leads, by a request of a client that produces."""
MAX_TOPICS_SAID: Final = 10_000
PRODUCED_MS: Final = 600_000
"""How long a topic counts as led here after data came for it, whatever is known of its leaders."""


@dataclass(slots=True)
class _Rejected:
    """What was rejected of a topic since it was said last (bytes, batches), and when that was."""

    bytes: int = 0
    batches: int = 0
    said_ms: int | None = None


class BrokerThresholds:
    """Decides about data for one broker, `broker` by name."""

    def __init__(
        self, broker: str | None, *, directory: TopicCache, counters: Counters, notify: Notify, now_ms: int
    ) -> None:
        self.broker = broker
        self.is_active = False
        """Whether anything can be rejected: whether the broker has a total."""
        self._directory = directory
        self._counters = counters
        self._notify = notify
        self._thresholds = TopicThresholds(now_ms)
        self._asked_ms: int | None = None
        self._directory_version = -1
        self._produced_ms: dict[str, int] = {}
        self._rejected: dict[str, _Rejected] = {}

    def apply(self, settings: ThresholdSettings) -> None:
        """Nothing; these thresholds hold from now on, the rates stay what they are."""
        total = settings.total_of(self.broker)
        self._thresholds.configure(total=total, topics=settings.topics)
        self.is_active = total is not None

    def asks_for_topics(self, now_ms: int) -> bool:
        """Whether it is time to ask which topics there are; then the next time is later."""
        if self._asked_ms is not None and now_ms - self._asked_ms < ASK_EVERY_MS:
            return False
        self._asked_ms = now_ms
        return True

    def decide(self, topic: str, now_ms: int) -> ThresholdDecision:
        """The decision on data for a topic; it counts as taken in once `took` is told."""
        self._produced_ms[topic] = now_ms
        self._follow_directory(now_ms)
        return self._thresholds.decide(topic, now_ms)

    def look(self, topic: str, now_ms: int) -> ThresholdDecision:
        """The decision on data for a topic; nothing changes by asking."""
        return self._thresholds.look(topic, now_ms)

    def admitted_in_ms(self, topic: str, now_ms: int) -> int:
        """After how many ms a topic is admitted again if nothing is taken in meanwhile; 0 where it is now."""
        return self._thresholds.admitted_in_ms(topic, now_ms)

    def took(self, topic: str, size: float, now_ms: int) -> None:
        """Nothing; the broker took so many bytes for a topic (below 0: it did not, after all)."""
        self._thresholds.record(topic, size, now_ms)

    def refused_for_size(self, size: int) -> None:
        """Nothing; the broker refused so many bytes because they were too many at once."""
        self._counters.oversized_bytes += size

    def rejected(self, decision: ThresholdDecision, size: int, now_ms: int, *, dropped: bool) -> None:
        """Nothing; so many bytes were rejected, or would have been for a client in shadow mode: counted and said."""
        counters = self._counters
        if dropped:
            counters.threshold_rejected_bytes += size
            counters.threshold_rejected_batches += 1
        else:
            counters.threshold_shadowed_bytes += size
        topic = self._rejected.get(decision.topic)
        if topic is None:
            while len(self._rejected) >= MAX_TOPICS_SAID:
                self._rejected.pop(next(iter(self._rejected)))
            topic = self._rejected[decision.topic] = _Rejected()
        topic.bytes += size
        topic.batches += 1
        if topic.said_ms is None or now_ms - topic.said_ms >= SAY_EVERY_MS:
            self._say(decision, topic, dropped=dropped)
            self._rejected[decision.topic] = _Rejected(said_ms=now_ms)

    def rates(self, now_ms: int) -> dict[str, tuple[float, float | None]]:
        """Each topic's rate and threshold (bytes/s), by name; of all together under the empty name."""
        thresholds = self._thresholds
        return {
            topic: (rate, thresholds.threshold(topic) if topic else thresholds.total)
            for topic, rate in thresholds.rates(now_ms).items()
        }

    def memories(self, now_ms: int) -> Iterator[tuple[str, tuple[float, ...]]]:
        """The figures of each meter that measures anything, by topic; of all together under the empty name."""
        if self.is_active:
            yield from self._thresholds.memories(now_ms)

    def remember(self, topic: str, memory: tuple[float, ...], *, shift_ms: int, now_ms: int) -> None:
        """Nothing; a topic's meter (empty: that of all together) goes on in place of another, moved by `shift_ms`.

        Raises `ValueError` for figures that are none of a meter.
        """
        self._thresholds.remember(topic, memory, shift_ms)
        if topic:
            self._produced_ms[topic] = now_ms

    def _follow_directory(self, now_ms: int) -> None:
        """Nothing; the topics that this broker leads are those that the directory knows by now."""
        if self._directory.version == self._directory_version or self.broker is None:
            return
        self._directory_version = self._directory.version
        self._produced_ms = {
            topic: produced_ms for topic, produced_ms in self._produced_ms.items() if now_ms - produced_ms < PRODUCED_MS
        }
        led = dict.fromkeys((*self._directory.led_by(int(self.broker)), *self._produced_ms))
        self._thresholds.set_topics(led, now_ms)

    def _say(self, decision: ThresholdDecision, topic: _Rejected, *, dropped: bool) -> None:
        fields: dict[str, str | float] = {
            "topic": decision.topic,
            "broker": self.broker or "bootstrap",
            "reason": decision.reason,
            "bytes": topic.bytes,
            "batches": topic.batches,
        }
        event = "data rejected: topic over its threshold" if dropped else "data would be rejected (shadow mode)"
        self._notify(LogEvent(event=event, severity=LogLevel.WARNING, fields=fields))


class ThresholdRegistry:
    """The thresholds in force, broker by broker; a broker met later gets those of that moment."""

    def __init__(self, *, directory: TopicCache, counters: Counters, notify: Notify, clock: Clock) -> None:
        self._directory = directory
        self._counters = counters
        self._notify = notify
        self._clock = clock
        self._store = self._file = self._settings = ThresholdSettings()
        self._brokers: dict[NodeId, BrokerThresholds] = {}

    @property
    def is_active(self) -> bool:
        """Whether any broker has thresholds."""
        return not self._settings.is_empty

    @property
    def brokers(self) -> Mapping[NodeId, BrokerThresholds]:
        """Each broker's thresholds by node id."""
        return MappingProxyType(self._brokers)

    def broker(self, node_id: NodeId) -> BrokerThresholds:
        """The thresholds of a broker."""
        thresholds = self._brokers.get(node_id)
        if thresholds is None:
            thresholds = self._brokers[node_id] = BrokerThresholds(
                None if node_id is None or node_id < 0 else str(node_id),
                directory=self._directory,
                counters=self._counters,
                notify=self._notify,
                now_ms=self._clock.now_ms(),
            )
            thresholds.apply(self._settings)
        return thresholds

    def name_bootstrap(self, node_id: int, placeholder: NodeId = None) -> None:
        """Nothing; the broker behind a bootstrap address turned out to be this node, and keeps its rates.

        `placeholder` is what it was known by before.
        """
        if placeholder in self._brokers and node_id not in self._brokers:
            thresholds = self._brokers[node_id] = self._brokers.pop(placeholder)
            thresholds.broker = str(node_id)
            thresholds.apply(self._settings)

    def check_file(self, settings: ThresholdSettings) -> None:
        """Nothing; these thresholds of a policy file can be used.

        Raises `InvalidQuotaError` where together with the store's the topics' sum to more than a broker's total.
        """
        _merged(self._store, settings)

    def apply_store(self, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Nothing; the thresholds among a store's entities and their quotas hold from now on, over those of a file.

        Raises what `check_file` raises; those before stay in force then.
        """
        self._apply(ThresholdSettings.of(entries), self._file)

    def apply_file(self, settings: ThresholdSettings) -> None:
        """Nothing; the thresholds of the policy file hold from now on, below those of the store.

        Raises what `check_file` raises; those before stay in force then.
        """
        self._apply(self._store, settings)

    def _apply(self, store: ThresholdSettings, file: ThresholdSettings) -> None:
        settings = _merged(store, file)
        self._store, self._file, self._settings = store, file, settings
        for thresholds in self._brokers.values():
            thresholds.apply(settings)


def _merged(store: ThresholdSettings, file: ThresholdSettings) -> ThresholdSettings:
    """The thresholds of both; raises `InvalidQuotaError` where the topics' sum to more than a broker's total."""
    settings = ThresholdSettings(topics={**file.topics, **store.topics}, totals={**file.totals, **store.totals})
    refused = settings.refusal()
    if refused is not None:
        raise refused
    return settings

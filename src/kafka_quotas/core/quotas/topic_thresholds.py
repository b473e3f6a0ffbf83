"""Thresholds on a broker's inbound data: one total for all topics, and one per topic, stated or shared.

A broker rejects data only if its total and the topic's own threshold are both exceeded. A topic without a stated
threshold gets an equal share of what the stated ones leave. Only topics of the broker get a share: those with a leader
on it, and those of which it took data. A name alone changes nothing, for any client can make names up.

Invariants: the stated thresholds, wherever their topics are led, never sum to more than the total. Rejected data counts
in no rate. At most `MAX_METERS` topics have a rate, those with the latest data. Rates are bytes per second, times ms.

**Source:** "Broker-side quota V1"; Kafka itself never had this.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafka_quotas.core.metrics.rate import EwmaMeter
from kafka_quotas.core.model.quota_key import ThresholdSettings

MAX_METERS: Final = 10_000
IDLE_MS: Final = 600_000
"""Time after its last data that a topic keeps its rate, which has faded by then."""
DROPPED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdDecision:
    """The decision on data for a topic, by rates and thresholds (bytes/s, None: none)."""

    admitted: bool
    topic: str
    topic_rate: float
    topic_threshold: float | None
    total_rate: float
    total_threshold: float | None

    @property
    def reason(self) -> str:
        """The reason for a rejection, as text for a log."""
        return (
            f"topic {self.topic} takes in {self.topic_rate:.0f} bytes/s of its {self.topic_threshold:.0f}, "
            f"and the broker {self.total_rate:.0f} of its {self.total_threshold:.0f}"
        )


class TopicThresholds:
    """The thresholds of one broker and the rates observed against them."""

    def __init__(self, start_ms: int) -> None:
        self.total: float | None = None
        """The total of the broker in bytes/s, or None for no total."""
        self._stated: dict[str, float] = {}
        self._led: Collection[str] = ()
        self._unstated = 0
        self._stated_here = 0.0
        self._total_meter = EwmaMeter(start_ms)
        self._meters: dict[str, EwmaMeter] = {}
        """By topic, the one whose last data is the longest ago first."""

    def configure(self, *, total: float | None, topics: Mapping[str, float]) -> None:
        """Set the total (None: none) and the thresholds of all topics in bytes/s, keeping the rates.

        Raises:
            InvalidQuotaError: The thresholds of the topics sum to more than the total; the configuration is unchanged.
        """
        ThresholdSettings(topics=topics, totals={} if total is None else {None: total})  # refuses what doesn't fit
        self.total = total
        self._stated = dict(topics)
        self._count_topics()

    def lead(self, topics: Collection[str]) -> None:
        """Set the topics that have a leader on this broker, again whenever they change."""
        self._led = topics
        self._count_topics()

    def threshold(self, topic: str) -> float | None:
        """Return the threshold of a topic (bytes/s): its own, or else the share of one of the broker's."""
        if topic in self._stated:
            return self._stated[topic]
        if self.total is None or not (topic in self._led or topic in self._meters):
            return None
        return (self.total - self._stated_here) / max(self._unstated, 1)

    def is_over_total(self, now_ms: int) -> bool:
        """Return whether the broker takes in more than its total, without which nothing is rejected."""
        return self.total is not None and self._total_meter.rate(now_ms) > self.total

    def look(self, topic: str, now_ms: int) -> ThresholdDecision:
        """Return the decision on data for a topic, which is admitted if it is none of the broker's."""
        meter = self._meters.get(topic)
        topic_rate = 0.0 if meter is None else meter.rate(now_ms)
        threshold = self.threshold(topic)
        over = threshold is not None and topic_rate > threshold and self.is_over_total(now_ms)
        return ThresholdDecision(
            admitted=not over,
            topic=topic,
            topic_rate=topic_rate,
            topic_threshold=threshold,
            total_rate=self._total_meter.rate(now_ms),
            total_threshold=self.total,
        )

    def admitted_in_ms(self, topic: str, now_ms: int) -> int:
        """Return the time in ms until a topic is admitted again if no more data arrives, 0 for now."""
        if self.look(topic, now_ms).admitted:
            return 0
        total, threshold = self.total, self.threshold(topic)
        assert total is not None, "without a total nothing is refused"
        assert threshold is not None, "without a threshold no topic is"
        return min(self._total_meter.falls_in_ms(total, now_ms), self._meters[topic].falls_in_ms(threshold, now_ms))

    def record(self, topic: str, size: float, now_ms: int) -> None:
        """Count `size` bytes that the broker took for a topic, or take back negative ones."""
        self.meter(topic, now_ms).record(size, now_ms)
        self._total_meter.record(size, now_ms)

    def meter(self, topic: str, now_ms: int) -> EwmaMeter:
        """Return the meter of a topic of which the broker took data, the empty one's of all together."""
        if not topic:
            return self._total_meter
        meter = self._meters.pop(topic, None)
        if meter is None:
            meter = self._meters[topic] = EwmaMeter(now_ms)
            if topic not in self._led:
                self._count_topic(topic, 1)
            self._drop_idle(now_ms)
        self._meters[topic] = meter
        return meter

    def rates(self, now_ms: int) -> dict[str, float]:
        """Return the rate of each topic with data in bytes/s, with that of all together under the empty name."""
        return {"": self._total_meter.rate(now_ms)} | {
            topic: meter.rate(now_ms) for topic, meter in self._meters.items()
        }

    def meters(self) -> Iterator[tuple[str, EwmaMeter, float]]:
        """Yield the meter of each topic that has a threshold, and that of all together under the empty name."""
        if self.total is not None:
            yield "", self._total_meter, self.total
        for topic, meter in list(self._meters.items()):
            threshold = self.threshold(topic)
            if threshold is not None:
                yield topic, meter, threshold

    def restore(self, topic: str, snapshot: tuple[float, ...], shift_ms: int, now_ms: int) -> None:
        """Restore the meter of a topic (empty: of all together) from a snapshot, moved by `shift_ms`."""
        EwmaMeter(0).restore(snapshot, shift_ms)  # refused figures make no topic
        self.meter(topic, now_ms).restore(snapshot, shift_ms)

    def _drop_idle(self, now_ms: int) -> None:
        """Drop the meters of topics that got no data for long, and the oldest beyond the bound."""
        for topic, meter in list(islice(self._meters.items(), DROPPED_AT_ONCE)):
            if len(self._meters) <= MAX_METERS and now_ms - meter.recorded_ms < IDLE_MS:
                break
            del self._meters[topic]
            if topic not in self._led:
                self._count_topic(topic, -1)

    def _count_topic(self, topic: str, by: int) -> None:
        stated = self._stated.get(topic)
        if stated is None:
            self._unstated += by
        else:
            self._stated_here += by * stated

    def _count_topics(self) -> None:
        """Count those that share, and what the stated thresholds of the broker's topics leave them."""
        self._unstated, self._stated_here = len(self._led), 0.0
        for topic, stated in self._stated.items():
            if topic in self._led:
                self._unstated -= 1
                self._stated_here += stated
        for topic in self._meters:
            if topic not in self._led:
                self._count_topic(topic, 1)

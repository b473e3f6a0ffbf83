"""Thresholds on a broker's inbound data: one total for all topics, and one per topic, stated or shared.

A broker rejects data only if its total and the topic's own threshold are both exceeded. A topic without a stated
threshold gets an equal share of what the stated ones leave. Only topics with a leader on this broker get a share.

Invariants: the stated thresholds, wherever their topics are led, never sum to more than the total. Rejected data counts
in no rate. Rates are bytes per second, times ms.

**Source:** "Broker-side quota V1"; Kafka itself never had this.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_quotas.core.metrics.ewma import EwmaMeter
from kafka_quotas.core.model.threshold import ThresholdSettings


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
        self._total: float | None = None
        self._stated: dict[str, float] = {}
        self._share: float | None = None
        self._total_meter = EwmaMeter(start_ms)
        self._meters: dict[str, EwmaMeter] = {}

    @property
    def total(self) -> float | None:
        """The total of the broker in bytes/s, or None for no total."""
        return self._total

    def configure(self, *, total: float | None, topics: Mapping[str, float]) -> None:
        """Set the total (None: none) and the thresholds of all topics in bytes/s, keeping the rates.

        Raises:
            InvalidQuotaError: The thresholds of the topics sum to more than the total; the configuration is unchanged.
        """
        refused = ThresholdSettings(topics=topics, totals={} if total is None else {None: total}).refusal()
        if refused is not None:
            raise refused
        self._total = total
        self._stated = dict(topics)
        self._share_out()

    def set_topics(self, led: Iterable[str], now_ms: int) -> None:
        """Set the topics that have a leader on this broker, starting new ones at a rate of 0."""
        self._meters = {topic: self._meters.get(topic) or EwmaMeter(now_ms) for topic in led}
        self._share_out()

    def threshold(self, topic: str) -> float | None:
        """Return the threshold of a topic (bytes/s): its own, or else the share of one that is led here."""
        if topic in self._stated:
            return self._stated[topic]
        return self._share if topic in self._meters else None

    def decide(self, topic: str, now_ms: int) -> ThresholdDecision:
        """Return the decision on data for a topic, led here from now on, without recording the data."""
        if topic not in self._meters:
            self.set_topics((*self._meters, topic), now_ms)
        return self.look(topic, now_ms)

    def look(self, topic: str, now_ms: int) -> ThresholdDecision:
        """Return the decision on data for a topic, which is admitted if it is not led here."""
        meter = self._meters.get(topic)
        topic_rate = 0.0 if meter is None else meter.rate(now_ms)
        total_rate = self._total_meter.rate(now_ms)
        threshold, total = self.threshold(topic), self._total
        over = total is not None and threshold is not None and total_rate > total and topic_rate > threshold
        return ThresholdDecision(
            admitted=not over,
            topic=topic,
            topic_rate=topic_rate,
            topic_threshold=threshold,
            total_rate=total_rate,
            total_threshold=total,
        )

    def admitted_in_ms(self, topic: str, now_ms: int) -> int:
        """Return the time in ms until a topic is admitted again if no more data arrives, 0 for now."""
        if self.look(topic, now_ms).admitted:
            return 0
        total, threshold = self._total, self.threshold(topic)
        assert total is not None, "without a total nothing is refused"
        assert threshold is not None, "without a threshold no topic is"
        return min(self._total_meter.falls_in_ms(total, now_ms), self._meters[topic].falls_in_ms(threshold, now_ms))

    def record(self, topic: str, size: float, now_ms: int) -> None:
        """Count `size` bytes for a topic as taken in, or take back negative ones."""
        if topic not in self._meters:
            self.set_topics((*self._meters, topic), now_ms)
        self._meters[topic].record(size, now_ms)
        self._total_meter.record(size, now_ms)

    def produce(self, topic: str, size: int, now_ms: int) -> ThresholdDecision:
        """Return the decision on `size` bytes for a topic, and record them if they are admitted."""
        decision = self.decide(topic, now_ms)
        if decision.admitted:
            self.record(topic, size, now_ms)
        return decision

    def rates(self, now_ms: int) -> dict[str, float]:
        """Return the rate of each topic led here in bytes/s, with that of all together under the empty name."""
        return {"": self._total_meter.rate(now_ms)} | {
            topic: meter.rate(now_ms) for topic, meter in self._meters.items()
        }

    def meters(self) -> Iterator[tuple[str, EwmaMeter, float]]:
        """Yield the meter of each topic that has a threshold, and that of all together under the empty name."""
        if self._total is not None:
            yield "", self._total_meter, self._total
        for topic, meter in list(self._meters.items()):
            threshold = self.threshold(topic)
            if threshold is not None:
                yield topic, meter, threshold

    def snapshots(self, now_ms: int) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the snapshot of each active meter by topic, with that of all together under the empty name."""
        for topic, meter in (("", self._total_meter), *self._meters.items()):
            if meter.rate(now_ms) >= 1.0 or meter.is_counting:
                yield topic, meter.snapshot

    def restore(self, topic: str, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the meter of a topic (empty: of all together) from a snapshot, moved by `shift_ms`.

        Raises:
            ValueError: Figures that are no snapshot of a meter.
        """
        meter = EwmaMeter(0)
        meter.restore(snapshot, shift_ms)
        if not topic:
            self._total_meter = meter
            return
        self._meters[topic] = meter
        self._share_out()

    def _share_out(self) -> None:
        """Compute the share of each led topic without a stated threshold, if there is one and a total."""
        unstated = sum(topic not in self._stated for topic in self._meters)
        if self._total is None or not unstated:
            self._share = None
            return
        stated = sum(value for topic, value in self._stated.items() if topic in self._meters)
        self._share = (self._total - stated) / unstated

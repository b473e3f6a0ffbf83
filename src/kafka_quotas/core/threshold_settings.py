"""The thresholds that are set on topics and brokers, as one value that can be judged as a whole.

Invariants: the thresholds of all topics never sum to more than the total of any broker, for any topic may be led by any
broker. Figures are bytes per second.
**Source:** "Broker-side quota V1".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_quotas.core.entity import ABSENT, Entity
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.threshold_key import TOPIC_THRESHOLD, TOTAL_THRESHOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSettings:
    """The threshold of each topic that has one, and the total of each broker by node id (None: of all others)."""

    topics: Mapping[str, float] = field(default_factory=dict)
    totals: Mapping[str | None, float] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> "ThresholdSettings":
        """The thresholds among some entities and their quotas; everything else is passed over.

        Raises `InvalidQuotaError` where the topics' sum to more than a broker's total.
        """
        topics: dict[str, float] = {}
        totals: dict[str | None, float] = {}
        for entity, quotas in entries:
            topic, broker = entity.topic, entity.broker
            if isinstance(topic, str) and TOPIC_THRESHOLD.name in quotas:
                topics[topic] = quotas[TOPIC_THRESHOLD.name]
            if broker is not ABSENT and TOTAL_THRESHOLD.name in quotas:
                totals[broker if isinstance(broker, str) else None] = quotas[TOTAL_THRESHOLD.name]
        settings = cls(topics=topics, totals=totals)
        refused = settings.refusal()
        if refused is not None:
            raise refused
        return settings

    @property
    def is_empty(self) -> bool:
        """Whether nothing is rejected anywhere: without a total no threshold counts."""
        return not self.totals

    def total_of(self, broker: str | None) -> float | None:
        """The total of a broker by its node id (None: not known yet), None where it has none."""
        own = None if broker is None else self.totals.get(broker)
        return self.totals.get(None) if own is None else own

    def refusal(self) -> InvalidQuotaError | None:
        """Why these thresholds are refused together, None where they are not."""
        stated = sum(self.topics.values())
        for broker, total in sorted(self.totals.items(), key=lambda item: (item[1], item[0] or "")):
            if stated > total:
                whose = "every broker" if broker is None else f"broker {broker}"
                return InvalidQuotaError(
                    f"the thresholds of topics would sum to {stated:.0f} bytes/s, more than the total of {total:.0f} "
                    f"of {whose}",
                    hint=f"raise {TOTAL_THRESHOLD.name} first, or lower {TOPIC_THRESHOLD.name} of another topic",
                )
        return None

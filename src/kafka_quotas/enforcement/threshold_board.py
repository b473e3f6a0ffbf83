"""The thresholds of every broker, and what is known of the topics that they are on."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.threshold_settings import ThresholdSettings
from kafka_quotas.enforcement.broker_thresholds import BrokerThresholds
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.notice import Notify
from kafka_quotas.enforcement.policy import NodeId
from kafka_quotas.enforcement.topic_directory import TopicDirectory


class ThresholdBoard:
    """The thresholds in force, broker by broker; a broker met later gets those of that moment."""

    def __init__(self, *, directory: TopicDirectory, counters: Counters, notify: Notify, clock: Clock) -> None:
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

"""The topic filters of a daemon: the factories for each broker's connections, and the state that they share.

The filters are for requests that create, grow, delete, name and fill topics. All brokers of a cluster share one
`TopicCache`; each broker has quotas and thresholds of its own.
"""

from collections.abc import Iterable, Mapping

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, Mutation
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.filters.auto_creation import AutoCreations, MetadataFilterFactory, StreamsFilterFactory
from kafka_quotas.enforcement.filters.mutation_filter import MutationFilterFactory
from kafka_quotas.enforcement.filters.protected_topic import CHANGING, ProtectedTopic, ProtectedTopicFactory
from kafka_quotas.enforcement.filters.thresholds import ThresholdFilterFactory, ThresholdRegistry
from kafka_quotas.enforcement.filters.topic_cache import TopicCache
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.session.filters import FilterFactory
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify


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
        mutations = MutationFilterFactory(
            quotas=quotas,
            rules=self._rules,
            cache=self._cache,
            auto_creations=self._auto_creations,
            counters=self._counters,
        )
        metadata = MetadataFilterFactory(
            quotas=quotas,
            rule=self._rules.auto_create,
            learns=lambda: self.thresholds.is_active,
            cache=self._cache,
            auto_creations=self._auto_creations,
        )
        streams = StreamsFilterFactory(quotas=quotas, rule=self._rules.auto_create, auto_creations=self._auto_creations)
        thresholds = ThresholdFilterFactory(
            thresholds=self.thresholds.broker(node_id),
            error=self._rules.threshold_error,
            counters=self._counters,
            cache=self._cache,
            sequences=quotas.sequences,
        )
        requested = (key for key, row in QUOTA_CHARGES.items() if row.mutation is Mutation.REQUESTED)
        factories: Mapping[int, FilterFactory] = {
            **dict.fromkeys(requested, mutations),
            ApiKey.METADATA.value: metadata,
            ApiKey.STREAMS_GROUP_HEARTBEAT.value: streams,
            ApiKey.PRODUCE.value: thresholds,
        }
        if self._protected is None:
            return factories
        topic, cache, sequences = self._protected, self._cache, quotas.sequences
        checks = {
            key.value: ProtectedTopicFactory(topic=topic, inner=factories.get(key), cache=cache, sequences=sequences)
            for key in CHANGING
        }
        return {**factories, **checks}

"""The topic filters of a daemon: the factories for each broker's connections, and the state that they share.

The filters are for requests that create, grow, delete, name and fill topics. All brokers of a cluster share one
`TopicCache`; each broker has quotas and thresholds of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import InvalidQuotaError
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
from kafka_quotas.enforcement.filters.protected_topic import CHANGING, ProtectedTopic, ProtectedTopicFactory
from kafka_quotas.enforcement.filters.thresholds import ThresholdFilterFactory, ThresholdRegistry
from kafka_quotas.enforcement.filters.topic_cache import TopicCache
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.enforcement.session.filters import FilteredRequest, FilterFactory, RequestFilter
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.wire.protocol.header import RequestHeader


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
            ApiKey.PRODUCE.value: ThresholdFilterFactory(
                thresholds=thresholds.broker(node_id), error=rules.threshold_error, sequences=sequences
            ),
        }
        if self._protected is not None:
            for key in CHANGING:
                factories[key.value] = ProtectedTopicFactory(
                    topic=self._protected, inner=factories.get(key), cache=self._cache, sequences=sequences
                )
        return factories

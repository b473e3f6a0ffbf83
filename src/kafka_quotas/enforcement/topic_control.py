"""Everything that a daemon does about topics: the claims of each broker's connections, and what they share.

The claims are on requests that create, grow, delete, name and fill topics. All brokers of a cluster share what is known
of its topics; quotas and thresholds are each broker's own.
"""

from collections.abc import Iterable, Mapping

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.quota_charges import QUOTA_CHARGES, Mutation
from kafka_quotas.enforcement.auto_creations import AutoCreations
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.metadata_claim import MetadataClaim
from kafka_quotas.enforcement.mutation_claim import MutationClaim
from kafka_quotas.enforcement.notice import Notice, Notify, Severity
from kafka_quotas.enforcement.policy import NodeId
from kafka_quotas.enforcement.rules import Rules
from kafka_quotas.enforcement.streams_treatment import StreamsClaim
from kafka_quotas.enforcement.threshold_board import ThresholdBoard
from kafka_quotas.enforcement.threshold_claim import ThresholdClaim
from kafka_quotas.enforcement.topic_directory import TopicDirectory
from kafka_quotas.enforcement.whole_treatment import Claim
from kafka_quotas.wire.metadata_request import METADATA
from kafka_quotas.wire.produce_request import PRODUCE
from kafka_quotas.wire.streams_heartbeat import STREAMS_GROUP_HEARTBEAT


class TopicControl:
    """Makes the claims of connections, and keeps the thresholds as the store and the policy file have them."""

    def __init__(self, rules: Rules, *, counters: Counters, notify: Notify, clock: Clock) -> None:
        self._rules = rules
        self._counters = counters
        self._notify = notify
        self._directory = TopicDirectory()
        self._claims: dict[BrokerQuotas, Mapping[int, Claim]] = {}
        self._auto_creations = AutoCreations(self._directory, counters)
        self.thresholds = ThresholdBoard(directory=self._directory, counters=counters, notify=notify, clock=clock)

    def claims(self, node_id: NodeId, quotas: BrokerQuotas) -> Mapping[int, Claim]:
        """Who deals with whole requests on a connection to a broker, by API key; the same for all of them."""
        claims = self._claims.get(quotas)
        if claims is None:
            claims = self._claims[quotas] = self._made(node_id, quotas)
        return claims

    def apply_store(self, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Nothing; the thresholds of a store hold, if they fit with those of the policy file; else that is said."""
        try:
            self.thresholds.apply_store(entries)
        except InvalidQuotaError as error:
            self._notify(
                Notice(
                    event="thresholds can't be used; those before stay in force",
                    severity=Severity.ERROR,
                    fields={"error": error.message},
                )
            )

    def _made(self, node_id: NodeId, quotas: BrokerQuotas) -> Mapping[int, Claim]:
        mutations = MutationClaim(
            quotas,
            self._rules.mutations,
            directory=self._directory,
            auto_creations=self._auto_creations,
            counters=self._counters,
        )
        metadata = MetadataClaim(
            quotas,
            self._rules.mutations.auto_create,
            learns=lambda: self.thresholds.is_active,
            directory=self._directory,
            auto_creations=self._auto_creations,
        )
        streams = StreamsClaim(quotas, self._rules.mutations.auto_create, auto_creations=self._auto_creations)
        thresholds = ThresholdClaim(
            self.thresholds.broker(node_id),
            self._rules.threshold_error,
            directory=self._directory,
            order=quotas.order,
        )
        requested = (key for key, row in QUOTA_CHARGES.items() if row.mutation is Mutation.REQUESTED)
        return {
            **dict.fromkeys(requested, mutations),
            METADATA: metadata,
            STREAMS_GROUP_HEARTBEAT: streams,
            PRODUCE: thresholds,
        }

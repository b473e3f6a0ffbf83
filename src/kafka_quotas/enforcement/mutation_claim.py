"""Which requests that create, grow or delete topics are dealt with as a whole: those of clients with a quota on it."""

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.auto_creations import AutoCreations
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.mutation_rules import MutationRules
from kafka_quotas.enforcement.mutation_treatment import MutationTreatment
from kafka_quotas.enforcement.topic_directory import TopicDirectory
from kafka_quotas.enforcement.whole_treatment import Unclaimed, WholeTreatment, check_topic_request
from kafka_quotas.wire.api_table import API_TABLE
from kafka_quotas.wire.request_header import RequestHeader


class MutationClaim:
    """The claim of one broker's connections on CreateTopics, CreatePartitions and DeleteTopics."""

    def __init__(
        self,
        quotas: BrokerQuotas,
        rules: MutationRules,
        *,
        directory: TopicDirectory,
        auto_creations: AutoCreations,
        counters: Counters,
    ) -> None:
        self._quotas = quotas
        self._rules = rules
        self._directory = directory
        self._auto_creations = auto_creations
        self._counters = counters

    @property
    def is_active(self) -> bool:
        """Whether any client may have such a quota."""
        return self._quotas.limits_mutations

    def claim(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> WholeTreatment | Unclaimed:
        """Return the treatment of a request whose client has a quota.

        Raises:
            ProtocolError: The request can't be read or is too long: passed on, it would be a way around the quota.
        """
        del chunk
        client = exchange.client
        if client is None or client.mutation.bound is None:
            return Unclaimed.STREAMS
        api = API_TABLE[header.api_key]
        if not api.handles(header.api_version):
            raise ProtocolError(
                f"{api.name} version {header.api_version} is beyond {api.max_version}, the newest that was announced",
                hint=f"its topics can't be counted, and {client.user!r} has a quota on them",
            )
        check_topic_request(header)
        return MutationTreatment(
            header,
            client.mutation,
            strict=self._rules.is_strict(*exchange.place) and not client.is_shadow,
            directory=self._directory,
            auto_creations=self._auto_creations,
            counters=self._counters,
        )

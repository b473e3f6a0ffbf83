"""Which Metadata requests are dealt with as a whole: those that may make topics, and all of them to learn from."""

from collections.abc import Callable

from kafka_quotas.enforcement.auto_creations import AutoCreations
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.metadata_treatment import MetadataTreatment
from kafka_quotas.enforcement.mutation_rules import AutoCreate
from kafka_quotas.enforcement.topic_directory import TopicDirectory
from kafka_quotas.enforcement.whole_treatment import (
    MAX_TOPIC_REQUEST_BYTES,
    Unclaimed,
    WholeTreatment,
    check_topic_request,
)
from kafka_quotas.wire.request_header import RequestHeader


class MetadataClaim:
    """The claim of one broker's connections on Metadata; `learns` says whether what passes is wanted to be known."""

    def __init__(
        self,
        quotas: BrokerQuotas,
        rule: AutoCreate,
        *,
        learns: Callable[[], bool],
        directory: TopicDirectory,
        auto_creations: AutoCreations,
    ) -> None:
        self._quotas = quotas
        self._rule = rule
        self._learns = learns
        self._directory = directory
        self._auto_creations = auto_creations

    @property
    def is_active(self) -> bool:
        """Whether anything may have to be done about Metadata."""
        counts = self._rule is AutoCreate.COUNT and self._quotas.limits_mutations
        return counts or self._rule is AutoCreate.FORBID or self._learns()

    def claim(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> WholeTreatment | Unclaimed:
        """Return the treatment of a request that may make topics, or from whose response something is to be learnt.

        Raises:
            ProtocolError: The request may make topics and is too long to be read as a whole.
        """
        del chunk
        client = exchange.client
        if client is None or client.is_internal or client.terms.exempt or client.is_shadow:
            rule, limiter = AutoCreate.PASS, None
        else:
            rule, limiter = self._rule, client.mutation if client.mutation.bound is not None else None
        counts = rule is AutoCreate.COUNT and limiter is not None
        if not (counts or rule is AutoCreate.FORBID or self._learns()):
            return Unclaimed.STREAMS
        if counts or rule is AutoCreate.FORBID:
            check_topic_request(header)
        elif header.frame_length > MAX_TOPIC_REQUEST_BYTES:
            return Unclaimed.STREAMS  # so much need not be learnt at once
        else:
            rule = AutoCreate.PASS  # of a client without a quota nothing is counted
        if not counts:
            exchange.decides = False
        return MetadataTreatment(header, rule, limiter, directory=self._directory, auto_creations=self._auto_creations)

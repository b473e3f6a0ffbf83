"""The filter of StreamsGroupHeartbeat, which charges the internal topics that a broker creates to the client.

The response names the topics. The filter charges them then, permissively, and corrects the charge when it knows how
many partitions they have: from a Metadata response, or by asking the broker before the client's next heartbeat passes.

**Source:** KIP-1071; `DefaultAutoTopicCreationManager.createStreamsInternalTopics` (4.3.1) sends a CreateTopics request
in the client's name, which the controller charges.
"""

from collections.abc import Sequence

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import AutoCreate
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.request_filter import (
    Charge,
    Forward,
    NotFiltered,
    RequestFilter,
    SendRequest,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.topics.auto_creation import AutoCreations
from kafka_quotas.enforcement.topics.topic_cache import TopicLookup
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.streams_heartbeat import topics_in_the_making
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.request_header import RequestHeader


class StreamsTreatment:
    """The filter of one heartbeat of a client with a mutation quota."""

    def __init__(self, header: RequestHeader, limiter: Limiter, auto_creations: AutoCreations) -> None:
        self._limiter = limiter
        self._auto_creations = auto_creations
        self._questions = TopicLookup(client_id=header.client_id, correlation_id=header.correlation_id)
        self._questions.about(auto_creations.unsettled(limiter))
        self._charges: list[Charge] = []

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """Forward the request after asking the broker about the topics of earlier heartbeats."""
        del exchange, now_ms
        question = self._questions.next()
        return Forward(frame=frame) if question is None else SendRequest(frame=question)

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Correct the charges of topics that exist by now."""
        del exchange
        _, charges = self._auto_creations.told(self._questions.told(frame), self._limiter, now_ms)
        self._charges += charges

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Charge the topics that the response names, and return it unchanged."""
        names = topics_in_the_making(exchange.api_version, frame)
        quota, charges = self._auto_creations.internal(names, self._limiter, now_ms)
        self._charges += charges
        if quota is not None:
            exchange.throttled(self._limiter, quota.throttle_ms(now_ms))
        return frame

    def charges(self) -> Sequence[Charge]:
        """Return the charges since the last call."""
        charges, self._charges = self._charges, []
        return charges


class StreamsClaim:
    """The factory of heartbeat filters for one broker's connections."""

    def __init__(self, quotas: BrokerQuotas, rule: AutoCreate, *, auto_creations: AutoCreations) -> None:
        self._quotas = quotas
        self._rule = rule
        self._auto_creations = auto_creations

    @property
    def is_active(self) -> bool:
        """Whether any client may have a mutation quota that auto-created topics count for."""
        return self._quotas.limits_mutations and self._rule is not AutoCreate.PASS

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """Return the filter of a heartbeat whose client has a mutation quota.

        Raises:
            ProtocolError: The request can't be read or is too long: passed on, it would be a way around the quota.
        """
        del chunk
        client = exchange.client
        if client is None or client.mutation.bound is None:
            return NotFiltered.STREAMS
        api = API_TABLE[header.api_key]
        if not api.handles(header.api_version):
            raise ProtocolError(
                f"{api.name} version {header.api_version} is beyond {api.max_version}, the newest known"
            )
        check_topic_request(header)
        return StreamsTreatment(header, client.mutation, self._auto_creations)

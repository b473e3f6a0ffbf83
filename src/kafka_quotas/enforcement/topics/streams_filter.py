"""One StreamsGroupHeartbeat: the internal topics that the broker makes because of it count as the client's mutations.

They are seen in the response, charged then, permissively, and settled when it is known how many partitions they have:
the broker is asked before the client's next heartbeat passes, unless a Metadata response told it before.
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
    """Deals with one heartbeat of a client whose mutations `limiter` limits."""

    def __init__(self, header: RequestHeader, limiter: Limiter, auto_creations: AutoCreations) -> None:
        self._limiter = limiter
        self._auto_creations = auto_creations
        self._questions = TopicLookup(client_id=header.client_id, correlation_id=header.correlation_id)
        self._questions.about(auto_creations.unsettled(limiter))
        self._charges: list[Charge] = []

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """Pass the request on, once the broker was asked about topics of earlier heartbeats."""
        del exchange, now_ms
        question = self._questions.next()
        return Forward(frame=frame) if question is None else SendRequest(frame=question)

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Settle what was charged for topics that exist by now."""
        del exchange
        _, charges = self._auto_creations.told(self._questions.told(frame), self._limiter, now_ms)
        self._charges += charges

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Charge the topics that the response names, and return it as it is."""
        names = topics_in_the_making(exchange.api_version, frame)
        quota, charges = self._auto_creations.internal(names, self._limiter, now_ms)
        self._charges += charges
        if quota is not None:
            exchange.throttled(self._limiter, quota.throttle_ms(now_ms))
        return frame

    def charges(self) -> Sequence[Charge]:
        """Return what was charged since this was asked last."""
        charges, self._charges = self._charges, []
        return charges


class StreamsClaim:
    """The claim of one broker's connections on StreamsGroupHeartbeat."""

    def __init__(self, quotas: BrokerQuotas, rule: AutoCreate, *, auto_creations: AutoCreations) -> None:
        self._quotas = quotas
        self._rule = rule
        self._auto_creations = auto_creations

    @property
    def is_active(self) -> bool:
        """Whether any client may have such a quota, and topics that brokers make count."""
        return self._quotas.limits_mutations and self._rule is not AutoCreate.PASS

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """Return the treatment of a heartbeat whose client has a quota.

        Raises:
            ProtocolError: It can't be read or is too long: passed on, it would be a way around the quota.
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

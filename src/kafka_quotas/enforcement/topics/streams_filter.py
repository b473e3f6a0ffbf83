"""The filter of StreamsGroupHeartbeat, which charges the internal topics that a broker creates to the client.

The response names the topics. The filter charges them then, permissively, and corrects the charge when it knows how
many partitions they have: from a Metadata response, or by asking the broker before the client's next heartbeat passes.

**Source:** KIP-1071; `DefaultAutoTopicCreationManager.createStreamsInternalTopics` (4.3.1) sends a CreateTopics request
in the client's name, which the controller charges.
"""

from dataclasses import dataclass

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import AutoCreate
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.request_filter import (
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
from kafka_quotas.wire.protocol.header import RequestHeader


class StreamsFilter(RequestFilter):
    """The filter of one heartbeat of a client with a mutation quota."""

    def __init__(self, header: RequestHeader, limiter: Limiter, auto_creations: AutoCreations) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._auto_creations = auto_creations
        self._lookup = TopicLookup(header)
        self._lookup.about(auto_creations.unsettled(limiter))

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        question = self._lookup.next()
        return Forward(frame=frame) if question is None else SendRequest(frame=question)

    def on_response_to_own(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> None:
        _, charges = self._auto_creations.take_topics(self._lookup.take_response(frame), self._limiter, now_ms)
        self._charges += charges

    def on_response(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Buffer:
        names = topics_in_the_making(request.api_version, frame)
        quota, charges = self._auto_creations.internal(names, self._limiter, now_ms)
        self._charges += charges
        if quota is not None:
            request.throttled(self._limiter, quota.throttle_ms(now_ms))
        return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsFilterFactory:
    """The factory of heartbeat filters for one broker's connections."""

    quotas: BrokerQuotas
    rule: AutoCreate
    auto_creations: AutoCreations

    @property
    def is_active(self) -> bool:
        return self.quotas.limits_mutations and self.rule is not AutoCreate.PASS

    def make_filter(
        self, request: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> RequestFilter | NotFiltered:
        client = request.client
        if client is None or client.mutation.bound is None:
            return NotFiltered.STREAMS
        api = API_TABLE[header.api_key]
        if not api.handles(header.api_version):  # passed on, it would be a way around the quota
            raise ProtocolError(
                f"{api.name} version {header.api_version} is beyond {api.max_version}, the newest known"
            )
        check_topic_request(header)
        return StreamsFilter(header, client.mutation, self.auto_creations)

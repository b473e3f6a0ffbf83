"""The filter of Metadata requests: learns topics from responses, and charges or prevents auto-creation.

A broker with auto-creation creates the topics that a request names and that do not exist, if the request allows it.
From version 4 on a field of the request forbids it. In older versions the filter asks the broker which topics do not
exist, cuts those out of the request and adds them to the response.

The filter takes the requests that may create topics, and all requests while the thresholds need to know the topics.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import AutoCreate
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.request_filter import (
    MAX_TOPIC_REQUEST_BYTES,
    Charge,
    Forward,
    NotFiltered,
    RequestFilter,
    SendRequest,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.topics.auto_creation import AutoCreations
from kafka_quotas.enforcement.topics.topic_cache import TopicCache, TopicLookup
from kafka_quotas.wire.codec.encoding import with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import (
    ParsedMetadataRequest,
    known_topics,
    parse_metadata_request,
    with_topics,
)
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.request_header import RequestHeader

FORBIDDEN: Final = b"\0"
"""`allow_auto_topic_creation` as false."""
MAX_LEARNT_BYTES: Final = 256 * 1024
"""Longest response that is read only to learn topics: any client can request any number of longer ones. Where it needs
their content the daemon asks for it once a minute (`BrokerThresholds.asks_for_topics`)."""


class MetadataFilter:
    """The filter of one Metadata request.

    `limiter` is that of the client's mutations, None for a client without a mutation quota.
    """

    def __init__(
        self,
        header: RequestHeader,
        rule: AutoCreate,
        limiter: Limiter | None,
        *,
        directory: TopicCache,
        auto_creations: AutoCreations,
    ) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._rule = rule
        self._limiter = limiter
        self._directory = directory
        self._auto_creations = auto_creations
        self._request: ParsedMetadataRequest | None = None
        self._questions = TopicLookup(client_id=header.client_id, correlation_id=header.correlation_id)
        self._absent: dict[str, int] = {}
        self._charges: Sequence[Charge] = ()

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """Forward the request, changed to create no topics if the rule forbids it.

        In versions before 4 it asks the broker first which topics do not exist.

        Raises:
            ProtocolError: The frame is no Metadata request of its version.
        """
        del exchange, now_ms
        if self._rule is AutoCreate.PASS:
            return Forward(frame=frame)  # only its response is of interest
        request = self._request
        if request is None:
            request = self._request = parse_metadata_request(frame, self._header)
            # Before version 4 no field forbids auto-creation: only naming no missing topic does.
            if self._forbids(request) and request.auto_creation_at is None:
                self._questions.about(request.names or ())
        question = self._questions.next()
        if question is not None:
            return SendRequest(frame=question)
        if not self._forbids(request):
            return Forward(frame=frame)
        if request.auto_creation_at is not None:
            place = slice(request.auto_creation_at, request.auto_creation_at + 1)
            frame[place] = FORBIDDEN
            return Forward(frame=frame)
        return Forward(frame=self._without_absent(frame, request))

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Take note of the topics that the broker reports as missing."""
        del exchange, now_ms
        told = self._questions.told(frame)
        self._absent = {
            topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in told
            if topic.name and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Learn and charge the topics of the response.

        Returns:
            The response with the topics that were cut out of the request.
        """
        request = self._request
        is_all = request is None or request.names is None
        if is_all and len(frame) > MAX_LEARNT_BYTES:
            return frame
        topics = known_topics(exchange.api_version, frame)
        self._directory.learn(topics)
        if request is None or request.names is None:
            return frame
        if self._limiter is not None and self._rule is AutoCreate.COUNT and request.may_create:
            quota, self._charges = self._auto_creations.told(topics, self._limiter, now_ms)
            if quota is not None:
                exchange.throttled(self._limiter, quota.throttle_ms(now_ms))
        return with_topics(exchange.api_version, frame, request.names, self._absent) if self._absent else frame

    def charges(self) -> Sequence[Charge]:
        """Return the charges since the last call.

        They are this client's for topics that it creates, and corrections of other clients' charges.
        """
        charges, self._charges = self._charges, ()
        return charges

    def _forbids(self, request: ParsedMetadataRequest) -> bool:
        """Return whether the request may create topics against the rule."""
        return self._rule is AutoCreate.FORBID and request.may_create and bool(request.names)

    def _without_absent(self, frame: bytearray, request: ParsedMetadataRequest) -> Buffer:
        if not self._absent:
            return frame
        form = API_TABLE[ApiKey.METADATA].encoding(self._header.api_version)
        named = zip(request.names or (), request.listed.spans, strict=True)
        kept = [frame[start:end] for name, (start, end) in named if name not in self._absent]
        return with_elements(form, frame, request.listed, kept)


class MetadataFilterFactory:
    """The factory of Metadata filters for one broker's connections.

    `learns` returns whether the thresholds need to know the cluster's topics.
    """

    def __init__(
        self,
        quotas: BrokerQuotas,
        rule: AutoCreate,
        *,
        learns: Callable[[], bool],
        directory: TopicCache,
        auto_creations: AutoCreations,
    ) -> None:
        self._quotas = quotas
        self._rule = rule
        self._learns = learns
        self._directory = directory
        self._auto_creations = auto_creations

    @property
    def is_active(self) -> bool:
        """Whether any Metadata request may need the filter."""
        counts = self._rule is AutoCreate.COUNT and self._quotas.limits_mutations
        return counts or self._rule is AutoCreate.FORBID or self._learns()

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """Return the filter of a request that may create topics or whose response lists some.

        Raises:
            ProtocolError: The request may create topics and is too long to be gathered.
        """
        del chunk
        client = exchange.client
        if client is None or client.is_internal or client.terms.exempt or client.is_shadow:
            rule, limiter = AutoCreate.PASS, None
        else:
            rule, limiter = self._rule, client.mutation if client.mutation.bound is not None else None
        counts = rule is AutoCreate.COUNT and limiter is not None
        if not (counts or rule is AutoCreate.FORBID or self._learns()):
            return NotFiltered.STREAMS
        if counts or rule is AutoCreate.FORBID:
            check_topic_request(header)
        elif header.frame_length > MAX_TOPIC_REQUEST_BYTES:
            return NotFiltered.STREAMS  # a request this long is not worth gathering only to learn from it
        else:
            rule = AutoCreate.PASS  # the request of a client without a quota is not charged
        if not counts:
            exchange.decides = False
        return MetadataFilter(header, rule, limiter, directory=self._directory, auto_creations=self._auto_creations)

"""One Metadata request: what its response tells is learnt, and topics that it would make are charged or not made.

Made by asking are topics that a request names and that do not exist, where the broker does so and the request lets it.
From version 4 on a request that may not make any says so itself; in older ones the topics that do not exist are cut out
of the request, after the broker was asked which those are, and answered here.

Which Metadata requests are dealt with as a whole: those that may make topics, and all of them to learn from.
"""

from collections.abc import Callable, Sequence
from typing import Final

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
from kafka_quotas.enforcement.topics.topic_cache import UNKNOWN_TOPIC, TopicCache, TopicLookup
from kafka_quotas.wire.codec.encoding import spelling, with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import (
    FLEXIBLE_SINCE,
    ParsedMetadataRequest,
    known_topics,
    parse_metadata_request,
    with_topics,
)
from kafka_quotas.wire.protocol.request_header import RequestHeader

FORBIDDEN: Final = b"\0"
MAX_LEARNT_BYTES: Final = 256 * 1024
"""Longest response that is read only to know more of topics. What longer ones tell is asked for once a minute, where it
is needed (`BrokerThresholds.asks_for_topics`); any client can have any number of them made."""


class MetadataFilter:
    """Deals with one request; `limiter` is that of the client's mutations, None where it has none to be held to."""

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
        """The request, which makes nothing where that is forbidden; in old versions a question first."""
        del exchange, now_ms
        if self._rule is AutoCreate.PASS:
            return Forward(frame=frame)  # only its response is of interest
        request = self._request
        if request is None:
            request = self._request = parse_metadata_request(frame, self._header)
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
        """Nothing; it is known which topics do not exist."""
        del exchange, now_ms
        told = self._questions.told(frame)
        self._absent = {topic.name: UNKNOWN_TOPIC for topic in told if topic.name and topic.error_code == UNKNOWN_TOPIC}

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """The response, with the topics in it that were cut out of the request."""
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
        """What was charged since this was asked last: to this client, for what it made or to others, given back."""
        charges, self._charges = self._charges, ()
        return charges

    def _forbids(self, request: ParsedMetadataRequest) -> bool:
        """Whether topics that the request names would be made and must not be."""
        return self._rule is AutoCreate.FORBID and request.may_create and bool(request.names)

    def _without_absent(self, frame: bytearray, request: ParsedMetadataRequest) -> Buffer:
        if not self._absent:
            return frame
        form = spelling(self._header.api_version, FLEXIBLE_SINCE)
        named = zip(request.names or (), request.listed.spans, strict=True)
        kept = [frame[start:end] for name, (start, end) in named if name not in self._absent]
        return with_elements(form, frame, request.listed, kept)


class MetadataFilterFactory:
    """The claim of one broker's connections on Metadata; `learns` says whether what passes is wanted to be known."""

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
        """Whether anything may have to be done about Metadata."""
        counts = self._rule is AutoCreate.COUNT and self._quotas.limits_mutations
        return counts or self._rule is AutoCreate.FORBID or self._learns()

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
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
            return NotFiltered.STREAMS
        if counts or rule is AutoCreate.FORBID:
            check_topic_request(header)
        elif header.frame_length > MAX_TOPIC_REQUEST_BYTES:
            return NotFiltered.STREAMS  # so much need not be learnt at once
        else:
            rule = AutoCreate.PASS  # of a client without a quota nothing is counted
        if not counts:
            exchange.decides = False
        return MetadataFilter(header, rule, limiter, directory=self._directory, auto_creations=self._auto_creations)

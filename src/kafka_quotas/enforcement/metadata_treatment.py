"""One Metadata request: what its response tells is learnt, and topics that it would make are charged or not made.

Made by asking are topics that a request names and that do not exist, where the broker does so and the request lets it.
From version 4 on a request that may not make any says so itself; in older ones the topics that do not exist are cut out
of the request, after the broker was asked which those are, and answered here.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.quota_manager import Limiter
from kafka_quotas.enforcement.auto_creations import AutoCreations
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.mutation_rules import AutoCreate
from kafka_quotas.enforcement.topic_directory import UNKNOWN_TOPIC, TopicDirectory
from kafka_quotas.enforcement.topic_questions import TopicQuestions
from kafka_quotas.enforcement.whole_treatment import Ask, Charge, Pass, Verdict
from kafka_quotas.wire.metadata_request import FLEXIBLE_SINCE, MetadataRequest, parse_metadata_request
from kafka_quotas.wire.metadata_topics import known_topics, with_topics
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.spelling import spelling, with_elements
from kafka_quotas.wire.walk import Buffer

FORBIDDEN: Final = b"\0"
MAX_LEARNT_BYTES: Final = 256 * 1024
"""Longest response that is read only to know more of topics. What longer ones tell is asked for once a minute, where it
is needed (`BrokerThresholds.asks_for_topics`); any client can have any number of them made."""


class MetadataTreatment:
    """Deals with one request; `limiter` is that of the client's mutations, None where it has none to be held to."""

    def __init__(
        self,
        header: RequestHeader,
        rule: AutoCreate,
        limiter: Limiter | None,
        *,
        directory: TopicDirectory,
        auto_creations: AutoCreations,
    ) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._rule = rule
        self._limiter = limiter
        self._directory = directory
        self._auto_creations = auto_creations
        self._request: MetadataRequest | None = None
        self._questions = TopicQuestions(client_id=header.client_id, correlation_id=header.correlation_id)
        self._absent: dict[str, int] = {}
        self._charges: Sequence[Charge] = ()

    def on_request(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Verdict:
        """The request, which makes nothing where that is forbidden; in old versions a question first."""
        del exchange, now_ms
        if self._rule is AutoCreate.PASS:
            return Pass(frame=frame)  # only its response is of interest
        request = self._request
        if request is None:
            request = self._request = parse_metadata_request(frame, self._header)
            if self._forbids(request) and request.auto_creation_at is None:
                self._questions.about(request.names or ())
        question = self._questions.next()
        if question is not None:
            return Ask(frame=question)
        if not self._forbids(request):
            return Pass(frame=frame)
        if request.auto_creation_at is not None:
            place = slice(request.auto_creation_at, request.auto_creation_at + 1)
            frame[place] = FORBIDDEN
            return Pass(frame=frame)
        return Pass(frame=self._without_absent(frame, request))

    def on_told(self, frame: bytearray, exchange: Exchange, now_ms: int) -> None:
        """Nothing; it is known which topics do not exist."""
        del exchange, now_ms
        told = self._questions.told(frame)
        self._absent = {topic.name: UNKNOWN_TOPIC for topic in told if topic.name and topic.error_code == UNKNOWN_TOPIC}

    def on_response(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Buffer:
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

    def _forbids(self, request: MetadataRequest) -> bool:
        """Whether topics that the request names would be made and must not be."""
        return self._rule is AutoCreate.FORBID and request.may_create and bool(request.names)

    def _without_absent(self, frame: bytearray, request: MetadataRequest) -> Buffer:
        if not self._absent:
            return frame
        form = spelling(self._header.api_version, FLEXIBLE_SINCE)
        named = zip(request.names or (), request.listed.spans, strict=True)
        kept = [frame[start:end] for name, (start, end) in named if name not in self._absent]
        return with_elements(form, frame, request.listed, kept)

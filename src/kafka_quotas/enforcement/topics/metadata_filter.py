"""The filter of Metadata requests: learns topics from responses, and charges or prevents auto-creation.

A broker with auto-creation creates the topics that a request names and that do not exist, if the request allows it.
From version 4 on a field of the request forbids it. In older versions the filter asks the broker which topics do not
exist, cuts those out of the request and adds them to the response.

The filter takes the requests that may create topics, and all requests while the thresholds need to know the topics.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import AutoCreate
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.request_filter import (
    MAX_TOPIC_REQUEST_BYTES,
    Forward,
    NotFiltered,
    RequestFilter,
    SendRequest,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.topics.auto_creation import AutoCreations
from kafka_quotas.enforcement.topics.topic_cache import TopicCache, TopicLookup, read_in_slices
from kafka_quotas.wire.codec.encoding import with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import ParsedMetadataRequest, parse_metadata_request, with_topics
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader

FORBIDDEN: Final = b"\0"
"""`allow_auto_topic_creation` as false."""
MAX_LEARNT_BYTES: Final = 256 * 1024
"""Longest response that is read only to learn topics: any client can request any number of longer ones. Where it needs
their content the daemon asks for it once a minute (`BrokerThresholds.asks_for_topics`)."""


class MetadataFilter(RequestFilter):
    """The filter of one Metadata request, with the limiter of a client that has a mutation quota."""

    def __init__(
        self, header: RequestHeader, rule: AutoCreate, limiter: Limiter | None, made_by: "MetadataFilterFactory"
    ) -> None:
        super().__init__(header)
        self._rule = rule
        self._limiter = limiter
        self._made_by = made_by
        self._parsed: ParsedMetadataRequest | None = None
        self._lookup = TopicLookup(header)
        self._absent: dict[str, int] = {}

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        if self._rule is AutoCreate.PASS:
            return Forward(frame=frame)  # only its response is of interest
        parsed = self._parsed
        if parsed is None:
            parsed = self._parsed = parse_metadata_request(frame, self._header)
            # Before version 4 no field forbids auto-creation: only naming no missing topic does.
            if self._forbids(parsed) and parsed.auto_creation_at is None:
                self._lookup.about(parsed.names or ())
        question = self._lookup.next()
        if question is not None:
            return SendRequest(frame=question)
        if not self._forbids(parsed):
            return Forward(frame=frame)
        if parsed.auto_creation_at is not None:
            frame[parsed.auto_creation_at : parsed.auto_creation_at + 1] = FORBIDDEN
            return Forward(frame=frame)
        return Forward(frame=self._without_absent(frame, parsed))

    def on_response_to_own(
        self, frame: bytearray, request: InFlightRequest, now_ms: int
    ) -> Generator[None, None, None]:
        yield from self._lookup.taking_response(frame)
        self._absent = {
            topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in self._lookup.known.values()
            if topic.name and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

    def on_response(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Generator[None, None, Buffer]:
        parsed = self._parsed
        if (parsed is None or parsed.names is None) and len(frame) > MAX_LEARNT_BYTES:
            return frame
        topics = yield from read_in_slices(request.api_version, frame)
        self._made_by.cache.learn(topics)
        if parsed is None or parsed.names is None:
            return frame
        if self._limiter is not None and self._rule is AutoCreate.COUNT and parsed.may_create:
            quota, charges = self._made_by.auto_creations.take_topics(topics, self._limiter, now_ms)
            # Besides this client's charges there are corrections of other clients' that named the same topics.
            self._charges += charges
            if quota is not None:
                request.throttled(self._limiter, quota.throttle_ms(now_ms))
        return with_topics(request.api_version, frame, parsed.names, self._absent) if self._absent else frame

    def _forbids(self, parsed: ParsedMetadataRequest) -> bool:
        """Return whether the request may create topics against the rule."""
        return self._rule is AutoCreate.FORBID and parsed.may_create and bool(parsed.names)

    def _without_absent(self, frame: bytearray, parsed: ParsedMetadataRequest) -> Buffer:
        if not self._absent:
            return frame
        form = API_TABLE[ApiKey.METADATA].encoding(self._header.api_version)
        named = zip(parsed.names or (), parsed.listed.spans, strict=True)
        kept = [frame[start:end] for name, (start, end) in named if name not in self._absent]
        return with_elements(form, frame, parsed.listed, kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFilterFactory:
    """The factory of Metadata filters for one broker's connections."""

    quotas: BrokerQuotas
    rule: AutoCreate
    learns: Callable[[], bool]
    """Returns whether the thresholds need to know the cluster's topics."""
    cache: TopicCache
    auto_creations: AutoCreations

    @property
    def is_active(self) -> bool:
        counts = self.rule is AutoCreate.COUNT and self.quotas.limits_mutations
        return counts or self.rule is AutoCreate.FORBID or self.learns()

    def make_filter(
        self, request: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> RequestFilter | NotFiltered:
        client = request.client
        if client is None or client.is_internal or client.policy.exempt or client.is_shadow:
            rule, limiter = AutoCreate.PASS, None
        else:
            rule, limiter = self.rule, client.mutation if client.mutation.bound is not None else None
        counts = rule is AutoCreate.COUNT and limiter is not None
        if not (counts or rule is AutoCreate.FORBID or self.learns()):
            return NotFiltered.STREAMS
        if counts or rule is AutoCreate.FORBID:
            check_topic_request(header)
        elif header.frame_length > MAX_TOPIC_REQUEST_BYTES:
            return NotFiltered.STREAMS  # a request this long is not worth gathering only to learn from it
        else:
            rule = AutoCreate.PASS  # the request of a client without a quota is not charged
        if not counts:
            request.blocks_next = False
        return MetadataFilter(header, rule, limiter, self)

"""The filter of Produce requests to a broker with thresholds, which rejects data of topics over theirs.

It cuts the rejected partitions out of the request and adds their errors to the response. Only data that the broker
accepts counts as intake of a topic, so names that a client made up change nothing. A batch after a rejected one is
refused as out of order, see `producer_sequences`.

With a total threshold every topic has a threshold, its own or its share, and the filter sees all Produce requests of
the broker. Without one nothing is ever rejected, and all requests stream.

**Source:** "Broker-side quota V1".
"""

from collections.abc import Generator
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision
from kafka_quotas.enforcement.config.rules import ThresholdError
from kafka_quotas.enforcement.quotas.producer_sequences import ClientName, ProducerSequences
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.produce_filters import PartialProduce, client_name
from kafka_quotas.enforcement.session.request_filter import NotFiltered, RequestFilter, SendRequest, Verdict
from kafka_quotas.enforcement.topics.thresholds import BrokerThresholds
from kafka_quotas.enforcement.topics.topic_cache import TopicCache, TopicLookup
from kafka_quotas.wire.codec.skip import SLICE, Buffer
from kafka_quotas.wire.passing.produce_request import (
    PartitionKey,
    ProduceData,
    ProducedPartition,
    ProducedTopic,
    TopicData,
    parse_produce,
)
from kafka_quotas.wire.passing.produce_response import partition_results
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader

MAX_ASKED: Final = 100
"""Most unknown topics of one request that the broker is asked about."""
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ThresholdFilter(RequestFilter):
    """The enforcement of thresholds on one Produce request, which rejects nothing in shadow mode."""

    def __init__(self, header: RequestHeader, *, is_shadow: bool, made_by: "ThresholdFilterFactory") -> None:
        super().__init__(header)
        self._is_shadow = is_shadow
        self._thresholds = made_by.thresholds
        self._error = made_by.error
        self._cache = made_by.cache
        self._sequences = made_by.sequences
        self._lookup = TopicLookup(header)
        self._client: ClientName = ("", "")
        self._data: ProduceData | None = None
        self._asks_for_all = False
        self._sizes: dict[PartitionKey, tuple[str, int]] = {}
        self._partial = PartialProduce(self._header)

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        data = self._data
        if data is None:
            self._cache.learn_more()
            self._client = client_name(request)
            data = self._data = parse_produce(frame, self._header)
            # Without knowing what this broker leads, a topic's share of the total can't be computed.
            if self._thresholds.asks_for_topics(now_ms):
                self._asks_for_all = True
                self._lookup.about_all()
            self._lookup.about(self._unknown(data, request))
        question = self._lookup.next()
        if question is not None:
            return SendRequest(frame=question)
        is_over = self._thresholds.is_over_total(now_ms)
        for topic in data.topics:
            self._decide(topic, now_ms, is_over=is_over)
        # Without a response (acks=0) nothing reports what the broker accepted: it does for topics that exist.
        if not request.expects_response:
            for name, size in self._sizes.values():
                if self._cache.knows(name):
                    self._thresholds.topics.record(name, size, now_ms)
        return self._partial.verdict(frame, data, request)

    def on_response_to_own(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> None:
        # All topics of a cluster may be a hundred thousand: the requests after this one read the rest of them.
        if self._asks_for_all:
            self._asks_for_all = False
            self._cache.learn_in_slices(self._lookup.iter_response(frame))
        else:
            self._cache.learn(self._lookup.take_response(frame))

    def on_response(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Generator[None, None, Buffer]:
        # Only what the broker accepted is intake of a topic: a batch that it refused comes again, or never.
        for number, result in enumerate(partition_results(request.api_version, frame)):
            if number % SLICE == SLICE - 1:
                yield
            topic, size = self._sizes.get((result.topic, result.partition), ("", 0))
            if result.error_code == ErrorCode.NONE and size:
                self._thresholds.topics.record(topic, size, now_ms)
            elif result.error_code in TOO_LARGE:
                self._thresholds.count_oversized(size)
        return self._partial.response(frame, request)

    def _name_of(self, topic: ProducedTopic) -> str | None:
        return topic if isinstance(topic, str) else self._cache.name_of(topic)

    def _unknown(self, data: ProduceData, request: InFlightRequest) -> list[ProducedTopic]:
        """Return the topics to ask the broker about, by their data, as a client may name any others."""
        # With a response the broker says which of the names are topics.
        names_matter = not request.expects_response
        unknown = [
            each
            for each in data.topics
            if (names_matter or not isinstance(each.topic, str)) and not self._cache.knows(each.topic)
        ]
        return [each.topic for each in nlargest(MAX_ASKED, unknown, key=_size)]

    def _decide(self, topic: TopicData, now_ms: int, *, is_over: bool) -> None:
        """Decide about a topic's partitions, and keep the sizes of those that pass."""
        name = self._name_of(topic.topic)
        if name is None:
            return  # the broker does not know it either
        decision = self._thresholds.decide(name, now_ms) if is_over else None
        for partition in topic.partitions:
            key = (topic.topic, partition.partition)
            if not self._is_rejected(key, partition, decision, now_ms):
                self._sizes[key] = (name, partition.size)

    def _is_rejected(
        self, key: PartitionKey, partition: ProducedPartition, decision: ThresholdDecision | None, now_ms: int
    ) -> bool:
        batch, sequences = partition.sequenced, self._sequences
        if batch is not None and sequences.follows_refused(self._client, key, batch, now_ms):
            self._partial.refuse_following(key)
            sequences.refused(self._client, key, batch, now_ms)
            return True
        if decision is not None and not decision.admitted:
            self._thresholds.rejected(decision, partition.size, now_ms, dropped=not self._is_shadow)
            if not self._is_shadow:
                self._partial.refuse(key, self._error.code, decision.reason)
                if batch is not None:
                    sequences.refused(self._client, key, batch, now_ms)
                return True
        if batch is not None:
            sequences.admitted(self._client, key, batch)
        return False


def _size(topic: TopicData) -> int:
    return sum(partition.size for partition in topic.partitions)


MAX_GATHERED_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Longest Produce that is gathered: the longest that a broker accepts by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdFilterFactory:
    """The factory of threshold filters for one broker's connections."""

    thresholds: BrokerThresholds
    error: ThresholdError
    cache: TopicCache
    sequences: ProducerSequences

    @property
    def is_active(self) -> bool:
        return self.thresholds.is_active

    def make_filter(
        self, request: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> RequestFilter | NotFiltered:
        if header.frame_length > MAX_GATHERED_REQUEST_BYTES:
            raise ProtocolError(
                f"a Produce announces {header.frame_length} bytes, {MAX_GATHERED_REQUEST_BYTES} are the limit where "
                "topics have thresholds"
            )
        # A threshold sets no throttle time, so the next request need not wait for the response.
        request.blocks_next = False
        client = request.client
        return ThresholdFilter(header, is_shadow=client is not None and client.is_shadow, made_by=self)

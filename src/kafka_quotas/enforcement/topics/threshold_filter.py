"""One Produce request to a broker with thresholds: data of topics over theirs is cut out and refused here.

What the broker takes counts as taken in, whatever it refuses does not. A batch behind one that was refused is refused
as out of order, see `batch_order`.
**Source:** "Broker-side quota V1".

Which Produce requests are dealt with as a whole: all of them at a broker that has a total threshold.

With a total every topic has a threshold, its own or its share; without one nothing is ever rejected, and all stream.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision
from kafka_quotas.enforcement.config.rules import ThresholdError
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.produce_filters import PartialProduce
from kafka_quotas.enforcement.session.request_filter import Charge, NotFiltered, RequestFilter, SendRequest, Verdict
from kafka_quotas.enforcement.topics.thresholds import BrokerThresholds
from kafka_quotas.enforcement.topics.topic_cache import TopicCache, TopicLookup
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.produce_request import (
    PartitionKey,
    ProduceData,
    ProducedPartition,
    ProducedTopic,
    TopicData,
    parse_produce,
)
from kafka_quotas.wire.passing.produce_response import partition_results
from kafka_quotas.wire.protocol.request_header import RequestHeader

NO_ERROR: Final = 0
TOO_LARGE: Final = (10, 18)
"""MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE."""


class ThresholdFilter:
    """Deals with one request; in shadow mode nothing is cut out."""

    def __init__(
        self,
        header: RequestHeader,
        thresholds: BrokerThresholds,
        error: ThresholdError,
        *,
        is_shadow: bool,
        directory: TopicCache,
        order: ProducerSequences,
    ) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._thresholds = thresholds
        self._error = error
        self._is_shadow = is_shadow
        self._directory = directory
        self._questions = TopicLookup(client_id=header.client_id, correlation_id=header.correlation_id)
        self._data: ProduceData | None = None
        self._sizes: dict[PartitionKey, tuple[str, int]] = {}
        self._order = order
        self._cut = PartialProduce(self._header)

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """The request without what is rejected, or the answer where nothing is left; unknown topics are asked for."""
        data = self._data
        if data is None:
            data = self._data = parse_produce(frame, self._header)
            self._question(data, now_ms)
        question = self._questions.next()
        if question is not None:
            return SendRequest(frame=question)
        for topic in data.topics:
            self._judge(topic, now_ms)
        if not exchange.expects_response:
            self._count_taken(now_ms)
        return self._cut.verdict(frame, data, exchange)

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Nothing; what was told of topics is known."""
        del exchange, now_ms
        self._directory.learn(self._questions.told(frame))

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """The response with the results of what was cut out in it."""
        for result in partition_results(exchange.api_version, frame):
            topic, size = self._sizes.get((result.topic, result.partition), ("", 0))
            if result.error_code == NO_ERROR and size:
                self._thresholds.took(topic, size, now_ms)
            elif result.error_code in TOO_LARGE:
                self._thresholds.refused_for_size(size)
        return self._cut.response(frame, exchange)

    def charges(self) -> Sequence[Charge]:
        """None: what a topic takes in is nobody's quota."""
        return ()

    def _question(self, data: ProduceData, now_ms: int) -> None:
        """Nothing; topics whose ids are unknown will be asked for, and now and then which topics there are."""
        if self._thresholds.asks_for_topics(now_ms):
            self._questions.about_all()
        self._questions.about([data.topic for data in data.topics if self._name_of(data.topic) is None])

    def _name_of(self, topic: ProducedTopic) -> str | None:
        return topic if isinstance(topic, str) else self._directory.name_of(topic)

    def _judge(self, topic: TopicData, now_ms: int) -> None:
        """Nothing; the partitions of a topic that are rejected are noted, and the sizes of the others."""
        name = self._name_of(topic.topic)
        if name is None:
            return  # the broker does not know it either
        decision = self._thresholds.decide(name, now_ms)
        for partition in topic.partitions:
            key = (topic.topic, partition.partition)
            if not self._is_rejected(key, partition, decision, now_ms):
                self._sizes[key] = (name, partition.size)

    def _is_rejected(
        self, key: PartitionKey, partition: ProducedPartition, decision: ThresholdDecision, now_ms: int
    ) -> bool:
        batch, order = partition.sequenced, self._order
        if batch is not None and order.is_behind_refused(key, batch, now_ms):
            self._cut.refuse_behind(key)
            order.refused(key, batch, now_ms)
            return True
        if not decision.admitted:
            self._thresholds.rejected(decision, partition.size, now_ms, dropped=not self._is_shadow)
            if not self._is_shadow:
                self._cut.refuse(key, self._error.code, decision.reason)
                if batch is not None:
                    order.refused(key, batch, now_ms)
                return True
        if batch is not None:
            order.admitted(key, batch)
        return False

    def _count_taken(self, now_ms: int) -> None:
        """Nothing; what is passed on counts as taken in, for nobody will tell."""
        for topic, size in self._sizes.values():
            self._thresholds.took(topic, size, now_ms)


MAX_GATHERED_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Longest Produce that is gathered; what a broker takes by default."""


class ThresholdFilterFactory:
    """The claim of one broker's connections on Produce."""

    def __init__(
        self, thresholds: BrokerThresholds, error: ThresholdError, *, directory: TopicCache, order: ProducerSequences
    ) -> None:
        self._thresholds = thresholds
        self._error = error
        self._directory = directory
        self._order = order

    @property
    def is_active(self) -> bool:
        """Whether any data can be rejected."""
        return self._thresholds.is_active

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """The treatment of a request. Raises `ProtocolError` for one that is too long to be gathered."""
        del chunk
        if header.frame_length > MAX_GATHERED_REQUEST_BYTES:
            raise ProtocolError(
                f"a Produce announces {header.frame_length} bytes, {MAX_GATHERED_REQUEST_BYTES} are the limit where "
                "topics have thresholds"
            )
        exchange.decides = False
        client = exchange.client
        return ThresholdFilter(
            header,
            self._thresholds,
            self._error,
            is_shadow=client is not None and client.is_shadow,
            directory=self._directory,
            order=self._order,
        )

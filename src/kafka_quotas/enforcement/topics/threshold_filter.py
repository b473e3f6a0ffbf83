"""The filter of Produce requests to a broker with thresholds, which rejects data of topics over theirs.

It cuts the rejected partitions out of the request and adds their errors to the response. Only data that the broker
accepts counts as intake of a topic. A batch after a rejected one is refused as out of order, see `producer_sequences`.

With a total threshold every topic has a threshold, its own or its share, and the filter sees all Produce requests of
the broker. Without one nothing is ever rejected, and all requests stream.

**Source:** "Broker-side quota V1".
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
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.request_header import RequestHeader

TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ThresholdFilter:
    """The enforcement of thresholds on one Produce request.

    In shadow mode it rejects nothing.
    """

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
        """Forward the request without the rejected partitions, or respond if none are left.

        It asks the broker first about topics whose ids it does not know.

        Raises:
            ProtocolError: The frame is no Produce of its version.
        """
        data = self._data
        if data is None:
            data = self._data = parse_produce(frame, self._header)
            self._question(data, now_ms)
        question = self._questions.next()
        if question is not None:
            return SendRequest(frame=question)
        for topic in data.topics:
            self._judge(topic, now_ms)
        # Without a response (acks=0) nothing reports what the broker accepted.
        if not exchange.expects_response:
            self._count_taken(now_ms)
        return self._cut.verdict(frame, data, exchange)

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Learn the topics that the broker reports."""
        del exchange, now_ms
        self._directory.learn(self._questions.told(frame))

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Count what the broker accepted, and return the response with the results of the rejected partitions."""
        for result in partition_results(exchange.api_version, frame):
            topic, size = self._sizes.get((result.topic, result.partition), ("", 0))
            if result.error_code == ErrorCode.NONE and size:
                self._thresholds.took(topic, size, now_ms)
            elif result.error_code in TOO_LARGE:
                self._thresholds.refused_for_size(size)
        return self._cut.response(frame, exchange)

    def charges(self) -> Sequence[Charge]:
        """Return no charges, because a threshold is no client's quota."""
        return ()

    def _question(self, data: ProduceData, now_ms: int) -> None:
        """Queue the questions about unknown topic ids and, once per interval, about all topics."""
        if self._thresholds.asks_for_topics(now_ms):
            self._questions.about_all()
        self._questions.about([data.topic for data in data.topics if self._name_of(data.topic) is None])

    def _name_of(self, topic: ProducedTopic) -> str | None:
        return topic if isinstance(topic, str) else self._directory.name_of(topic)

    def _judge(self, topic: TopicData, now_ms: int) -> None:
        """Decide about the partitions of a topic, and keep the sizes of those that pass."""
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
        """Count the data of all partitions that pass as accepted."""
        for topic, size in self._sizes.values():
            self._thresholds.took(topic, size, now_ms)


MAX_GATHERED_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Longest Produce that is gathered: the longest that a broker accepts by default."""


class ThresholdFilterFactory:
    """The factory of threshold filters for one broker's connections."""

    def __init__(
        self, thresholds: BrokerThresholds, error: ThresholdError, *, directory: TopicCache, order: ProducerSequences
    ) -> None:
        self._thresholds = thresholds
        self._error = error
        self._directory = directory
        self._order = order

    @property
    def is_active(self) -> bool:
        """Whether the thresholds can reject data."""
        return self._thresholds.is_active

    def claim(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | NotFiltered:
        """Return the filter of a request.

        Raises:
            ProtocolError: The request is too long to be gathered.
        """
        del chunk
        if header.frame_length > MAX_GATHERED_REQUEST_BYTES:
            raise ProtocolError(
                f"a Produce announces {header.frame_length} bytes, {MAX_GATHERED_REQUEST_BYTES} are the limit where "
                "topics have thresholds"
            )
        # A threshold sets no throttle time, so the next request need not wait for the response.
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

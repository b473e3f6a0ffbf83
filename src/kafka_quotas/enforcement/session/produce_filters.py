"""Requests of a client over its byte rate that are refused with an error instead of being delayed.

The broker never sees them, and their bytes count for nothing. The error is the one that brokers give for quotas, 89
`THROTTLING_QUOTA_EXCEEDED`, after which Java clients try again (librdkafka gives records up); the throttle time says
when that makes sense. Nobody is muted. A Fetch of a version without an error of its own gets an empty answer.

A Produce request some of whose partitions are refused here: what goes on of it, and what its client is told.

One Produce request of a client whose requests are refused while it is over its byte rate, when it is not.

What was refused may have been a numbered batch; until it comes again those behind it are refused as out of order, for
a broker that never saw the producer would take them first and refuse the earlier batch for good.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences
from kafka_quotas.enforcement.session.in_flight import FETCH, InFlightRequest
from kafka_quotas.enforcement.session.request_filter import Charge, Forward, Respond, Verdict
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.fetch_response import empty_fetch_response
from kafka_quotas.wire.passing.produce_request import PartitionKey, ProduceData, parse_produce, without_partitions
from kafka_quotas.wire.passing.produce_response import (
    all_refused_partitions,
    refused_partition,
    with_refused_partitions,
)
from kafka_quotas.wire.passing.share_fetch_request import SHARE_FETCH
from kafka_quotas.wire.passing.share_fetch_response import refused_share_fetch
from kafka_quotas.wire.passing.throttle_time import patch_throttle
from kafka_quotas.wire.protocol.request_header import RequestHeader, parse_request_header

OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
_BEHIND_REFUSED: Final = "an earlier batch of this producer was rejected"


class PartialProduce:
    """The refused partitions of one request with this header."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header
        self._refused: dict[PartitionKey, bytes] = {}
        self._order: Sequence[PartitionKey] = ()

    def refuse(self, key: PartitionKey, error_code: int, message: str) -> None:
        """Nothing; a partition is refused, and its client will be told why."""
        self._refused[key] = refused_partition(self._header.api_version, key[1], error_code=error_code, message=message)

    def refuse_behind(self, key: PartitionKey) -> None:
        """Nothing; a partition is refused because its batch comes behind one that was."""
        self.refuse(key, OUT_OF_ORDER_SEQUENCE_NUMBER, _BEHIND_REFUSED)

    def verdict(self, frame: Buffer, data: ProduceData, exchange: InFlightRequest) -> Verdict:
        """The request without what is refused, or the answer where nothing is left of it."""
        self._order = data.order
        if not self._refused:
            return Forward(frame=frame)
        cut = without_partitions(frame, self._header, data, self._refused.__contains__)
        if cut is not None:
            return Forward(frame=cut)
        if not exchange.expects_response:
            return Respond(frame=None)
        version = exchange.api_version
        return Respond(frame=all_refused_partitions(version, exchange.correlation_id, self._order, self._refused))

    def response(self, frame: Buffer, exchange: InFlightRequest) -> Buffer:
        """The response with the results of what was refused in it."""
        if not self._refused:
            return frame
        return with_refused_partitions(exchange.api_version, frame, self._order, self._refused)


class SequenceFilter:
    """Lets pass what is in order; a request of which nothing is counts for nothing."""

    def __init__(self, header: RequestHeader, order: ProducerSequences) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._order = order
        self._cut = PartialProduce(self._header)
        self._charges: list[Charge] = []

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """The request without what comes too early. Raises `ProtocolError` where it can't be what its header says."""
        data = parse_produce(frame, self._header)
        for topic in data.topics:
            for partition in topic.partitions:
                key, batch = (topic.topic, partition.partition), partition.sequenced
                if batch is None:
                    continue
                if self._order.is_behind_refused(key, batch, now_ms):
                    self._cut.refuse_behind(key)
                    self._order.refused(key, batch, now_ms)
                else:
                    self._order.admitted(key, batch)
        verdict = self._cut.verdict(frame, data, exchange)
        if isinstance(verdict, Respond) and exchange.client is not None:
            limiter, length = exchange.client.produce, exchange.frame_length
            limiter.unrecord(length, now_ms)
            self._charges.append((limiter, -length))
        return verdict

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Nothing: nothing is asked."""

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """The response with the results of what came too early in it."""
        del now_ms
        return self._cut.response(frame, exchange)

    def charges(self) -> Sequence[Charge]:
        """What was given back since this was asked last."""
        charges, self._charges = self._charges, []
        return charges


THROTTLING_QUOTA_EXCEEDED: Final = 89


class QuotaErrorFilter:
    """Answers one Produce, Fetch or ShareFetch request with an error.

    `wait_ms` is how long the client would have been delayed. Numbered batches that it refuses are noted in `order`.
    """

    __slots__ = ("_limiter", "_order", "_wait_ms")

    def __init__(self, limiter: Limiter, wait_ms: int, order: ProducerSequences) -> None:
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._order = order

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """The answer. Raises `ProtocolError` where the request can't be what its header says."""
        if exchange.api_key == FETCH:
            return Respond(
                frame=empty_fetch_response(
                    exchange.api_version,
                    exchange.correlation_id,
                    session_id=0,
                    throttle_ms=self._wait_ms,
                    error_code=THROTTLING_QUOTA_EXCEEDED,
                )
            )
        if exchange.api_key == SHARE_FETCH:
            return Respond(
                frame=refused_share_fetch(
                    exchange.correlation_id, throttle_ms=self._wait_ms, error=THROTTLING_QUOTA_EXCEEDED
                )
            )
        answer = bytearray(self._refused_produce(frame, exchange, now_ms))
        patch_throttle(answer, *exchange.place, self._wait_ms)
        return Respond(frame=bytes(answer))

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Nothing: nothing is asked."""

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """The response as it is; there is none, for the broker is not asked."""
        del exchange, now_ms
        return frame

    def charges(self) -> Sequence[Charge]:
        """None: what is refused counts for nothing."""
        return ()

    def _refused_produce(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> bytes:
        header = parse_request_header(frame)
        assert header is not None, "the request was gathered whole"
        data = parse_produce(frame, header)
        for topic in data.topics:
            for partition in topic.partitions:
                if partition.sequenced is not None:
                    self._order.refused((topic.topic, partition.partition), partition.sequenced, now_ms)
        message = f"{self._limiter.quota_type.key.name} of {self._limiter.entity} is exceeded for {self._wait_ms} ms"
        refused = {
            key: refused_partition(exchange.api_version, key[1], error_code=THROTTLING_QUOTA_EXCEEDED, message=message)
            for key in data.order
        }
        return all_refused_partitions(exchange.api_version, exchange.correlation_id, data.order, refused)

"""Filters that refuse Produce and fetch requests, or single partitions of a Produce, with an error.

A client whose policy asks for errors gets one instead of a delay while it is over its byte rate. The broker never sees
the refused request, and its bytes count for no quota. The error is the one that brokers return for quotas, 89
`THROTTLING_QUOTA_EXCEEDED`, after which Java clients try again (librdkafka gives the records up); the throttle time is
the time until that makes sense. The daemon does not mute the client. A Fetch of a version without an error code of its
own gets an empty response.

A refused Produce may have held a numbered batch. Until it comes again the daemon refuses the batches after it as out of
order: a broker that never saw the producer would take them first and refuse the earlier batch for good.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences
from kafka_quotas.enforcement.session.in_flight import FETCH, SHARE_FETCH, InFlightRequest
from kafka_quotas.enforcement.session.request_filter import Charge, Forward, Respond, Verdict
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.fetch_response import empty_fetch_response
from kafka_quotas.wire.passing.produce_request import PartitionKey, ProduceData, parse_produce, without_partitions
from kafka_quotas.wire.passing.produce_response import (
    all_refused_partitions,
    refused_partition,
    with_refused_partitions,
)
from kafka_quotas.wire.passing.share_fetch_response import refused_share_fetch
from kafka_quotas.wire.passing.throttle_time import patch_throttle
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.request_header import RequestHeader, parse_request_header

_BEHIND_REFUSED: Final = "an earlier batch of this producer was rejected"


class PartialProduce:
    """The refused partitions of one Produce request, whose other partitions may pass."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header
        self._refused: dict[PartitionKey, bytes] = {}
        self._order: Sequence[PartitionKey] = ()

    def refuse(self, key: PartitionKey, error_code: int, message: str) -> None:
        """Refuse a partition with an error and a message for the client."""
        self._refused[key] = refused_partition(self._header.api_version, key[1], error_code=error_code, message=message)

    def refuse_behind(self, key: PartitionKey) -> None:
        """Refuse a partition because its batch follows a refused one."""
        self.refuse(key, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _BEHIND_REFUSED)

    def verdict(self, frame: Buffer, data: ProduceData, exchange: InFlightRequest) -> Verdict:
        """Return the request without the refused partitions, or a response if none are left."""
        self._order = data.order
        if not self._refused:
            return Forward(frame=frame)
        cut = without_partitions(frame, self._header, data, self._refused.__contains__)
        if cut is not None:
            return Forward(frame=cut)
        # A client with acks=0 gets no response, not even to a refused request.
        if not exchange.expects_response:
            return Respond(frame=None)
        version = exchange.api_version
        return Respond(frame=all_refused_partitions(version, exchange.correlation_id, self._order, self._refused))

    def response(self, frame: Buffer, exchange: InFlightRequest) -> Buffer:
        """Return the response with the results of the refused partitions added."""
        if not self._refused:
            return frame
        return with_refused_partitions(exchange.api_version, frame, self._order, self._refused)


class SequenceFilter:
    """The order of numbered batches in one Produce request of a client that gets errors.

    It refuses the partitions whose batch follows a refused one, and gives the bytes back if no partition is left.
    """

    def __init__(self, header: RequestHeader, order: ProducerSequences) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._order = order
        self._cut = PartialProduce(self._header)
        self._charges: list[Charge] = []

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """Return the request without the batches that come too early.

        Raises:
            ProtocolError: The frame is no Produce of its version.
        """
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
            # `RequestHandler` recorded the bytes at the end of the request, before this call.
            limiter, length = exchange.client.produce, exchange.frame_length
            limiter.unrecord(length, now_ms)
            self._charges.append((limiter, -length))
        return verdict

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Do nothing, because the filter sends no request."""

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Return the response with the results of the batches that came too early."""
        del now_ms
        return self._cut.response(frame, exchange)

    def charges(self) -> Sequence[Charge]:
        """Return the charges since the last call: bytes that were given back."""
        charges, self._charges = self._charges, []
        return charges


class QuotaErrorFilter:
    """The refusal of one Produce, Fetch or ShareFetch request.

    `wait_ms` is the delay that the client would have had. `order` records the numbered batches that are refused.
    """

    __slots__ = ("_limiter", "_order", "_wait_ms")

    def __init__(self, limiter: Limiter, wait_ms: int, order: ProducerSequences) -> None:
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._order = order

    def on_request(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Verdict:
        """Respond with the error, or with an empty Fetch response.

        Raises:
            ProtocolError: The frame is no Produce of its version.
        """
        if exchange.api_key == FETCH:
            return Respond(
                frame=empty_fetch_response(
                    exchange.api_version,
                    exchange.correlation_id,
                    session_id=0,
                    throttle_ms=self._wait_ms,
                    error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                )
            )
        if exchange.api_key == SHARE_FETCH:
            return Respond(
                frame=refused_share_fetch(
                    exchange.correlation_id, throttle_ms=self._wait_ms, error=ErrorCode.THROTTLING_QUOTA_EXCEEDED
                )
            )
        answer = bytearray(self._refused_produce(frame, exchange, now_ms))
        patch_throttle(answer, *exchange.place, self._wait_ms)
        return Respond(frame=bytes(answer))

    def on_told(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> None:
        """Do nothing, because the filter sends no request."""

    def on_response(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> Buffer:
        """Return the response unchanged."""
        del exchange, now_ms
        return frame

    def charges(self) -> Sequence[Charge]:
        """Return no charges, because a refused request counts for no quota."""
        return ()

    def _refused_produce(self, frame: bytearray, exchange: InFlightRequest, now_ms: int) -> bytes:
        header = parse_request_header(frame)
        assert header is not None, "the request was gathered whole"
        data = parse_produce(frame, header)
        for topic in data.topics:
            for partition in topic.partitions:
                # Later batches of this producer have to wait until this one comes again.
                if partition.sequenced is not None:
                    self._order.refused((topic.topic, partition.partition), partition.sequenced, now_ms)
        message = f"{self._limiter.quota_type.key.name} of {self._limiter.entity} is exceeded for {self._wait_ms} ms"
        refused = {
            key: refused_partition(
                exchange.api_version, key[1], error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, message=message
            )
            for key in data.order
        }
        return all_refused_partitions(exchange.api_version, exchange.correlation_id, data.order, refused)

"""Requests of a client over its byte rate that are refused with an error instead of being delayed.

The broker never sees them, and their bytes count for nothing. The error is the one that brokers give for quotas, 89
`THROTTLING_QUOTA_EXCEEDED`, after which Java clients try again (librdkafka gives records up); the throttle time says
when that makes sense. Nobody is muted. A Fetch of a version without an error of its own gets an empty answer.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.quota_manager import Limiter
from kafka_quotas.enforcement.batch_order import BatchOrder
from kafka_quotas.enforcement.exchange import FETCH, Exchange
from kafka_quotas.enforcement.whole_treatment import Answer, Charge, Verdict
from kafka_quotas.wire.fetch_response import empty_fetch_response
from kafka_quotas.wire.produce_partitions import parse_produce
from kafka_quotas.wire.produce_results import all_refused_partitions, refused_partition
from kafka_quotas.wire.request_header import parse_request_header
from kafka_quotas.wire.share_fetch_request import SHARE_FETCH
from kafka_quotas.wire.share_fetch_response import refused_share_fetch
from kafka_quotas.wire.throttle_field import patch_throttle
from kafka_quotas.wire.walk import Buffer

THROTTLING_QUOTA_EXCEEDED: Final = 89


class Refusal:
    """Answers one Produce, Fetch or ShareFetch request with an error.

    `wait_ms` is how long the client would have been delayed. Numbered batches that it refuses are noted in `order`.
    """

    __slots__ = ("_limiter", "_order", "_wait_ms")

    def __init__(self, limiter: Limiter, wait_ms: int, order: BatchOrder) -> None:
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._order = order

    def on_request(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Verdict:
        """The answer. Raises `ProtocolError` where the request can't be what its header says."""
        if exchange.api_key == FETCH:
            return Answer(
                frame=empty_fetch_response(
                    exchange.api_version,
                    exchange.correlation_id,
                    session_id=0,
                    throttle_ms=self._wait_ms,
                    error_code=THROTTLING_QUOTA_EXCEEDED,
                )
            )
        if exchange.api_key == SHARE_FETCH:
            return Answer(
                frame=refused_share_fetch(
                    exchange.correlation_id, throttle_ms=self._wait_ms, error=THROTTLING_QUOTA_EXCEEDED
                )
            )
        answer = bytearray(self._refused_produce(frame, exchange, now_ms))
        patch_throttle(answer, *exchange.place, self._wait_ms)
        return Answer(frame=bytes(answer))

    def on_told(self, frame: bytearray, exchange: Exchange, now_ms: int) -> None:
        """Nothing: nothing is asked."""

    def on_response(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Buffer:
        """The response as it is; there is none, for the broker is not asked."""
        del exchange, now_ms
        return frame

    def charges(self) -> Sequence[Charge]:
        """None: what is refused counts for nothing."""
        return ()

    def _refused_produce(self, frame: bytearray, exchange: Exchange, now_ms: int) -> bytes:
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

"""Which Produce requests are dealt with as a whole: all of them at a broker that has a total threshold.

With a total every topic has a threshold, its own or its share; without one nothing is ever rejected, and all stream.
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.batch_order import BatchOrder
from kafka_quotas.enforcement.broker_thresholds import BrokerThresholds
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.threshold_rules import ThresholdError
from kafka_quotas.enforcement.threshold_treatment import ThresholdTreatment
from kafka_quotas.enforcement.topic_directory import TopicDirectory
from kafka_quotas.enforcement.whole_treatment import Unclaimed, WholeTreatment
from kafka_quotas.wire.request_header import RequestHeader

MAX_GATHERED_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Longest Produce that is gathered; what a broker takes by default."""


class ThresholdClaim:
    """The claim of one broker's connections on Produce."""

    def __init__(
        self, thresholds: BrokerThresholds, error: ThresholdError, *, directory: TopicDirectory, order: BatchOrder
    ) -> None:
        self._thresholds = thresholds
        self._error = error
        self._directory = directory
        self._order = order

    @property
    def is_active(self) -> bool:
        """Whether any data can be rejected."""
        return self._thresholds.is_active

    def claim(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> WholeTreatment | Unclaimed:
        """The treatment of a request. Raises `ProtocolError` for one that is too long to be gathered."""
        del chunk
        if header.frame_length > MAX_GATHERED_REQUEST_BYTES:
            raise ProtocolError(
                f"a Produce announces {header.frame_length} bytes, {MAX_GATHERED_REQUEST_BYTES} are the limit where "
                "topics have thresholds"
            )
        exchange.decides = False
        client = exchange.client
        return ThresholdTreatment(
            header,
            self._thresholds,
            self._error,
            is_shadow=client is not None and client.is_shadow,
            directory=self._directory,
            order=self._order,
        )

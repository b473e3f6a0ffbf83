"""A Produce request some of whose partitions are refused here: what goes on of it, and what its client is told."""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.whole_treatment import Answer, Pass, Verdict
from kafka_quotas.wire.produce_partitions import PartitionKey, ProduceData, without_partitions
from kafka_quotas.wire.produce_results import all_refused_partitions, refused_partition, with_refused_partitions
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import Buffer

OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
_BEHIND_REFUSED: Final = "an earlier batch of this producer was rejected"


class ProduceCut:
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

    def verdict(self, frame: Buffer, data: ProduceData, exchange: Exchange) -> Verdict:
        """The request without what is refused, or the answer where nothing is left of it."""
        self._order = data.order
        if not self._refused:
            return Pass(frame=frame)
        cut = without_partitions(frame, self._header, data, self._refused.__contains__)
        if cut is not None:
            return Pass(frame=cut)
        if not exchange.expects_response:
            return Answer(frame=None)
        version = exchange.api_version
        return Answer(frame=all_refused_partitions(version, exchange.correlation_id, self._order, self._refused))

    def response(self, frame: Buffer, exchange: Exchange) -> Buffer:
        """The response with the results of what was refused in it."""
        if not self._refused:
            return frame
        return with_refused_partitions(exchange.api_version, frame, self._order, self._refused)

"""One Produce request of a client whose requests are refused while it is over its byte rate, when it is not.

What was refused may have been a numbered batch; until it comes again those behind it are refused as out of order, for
a broker that never saw the producer would take them first and refuse the earlier batch for good.
"""

from collections.abc import Sequence

from kafka_quotas.enforcement.batch_order import BatchOrder
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.produce_cut import ProduceCut
from kafka_quotas.enforcement.whole_treatment import Answer, Charge, Verdict
from kafka_quotas.wire.produce_partitions import parse_produce
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import Buffer


class OrderTreatment:
    """Lets pass what is in order; a request of which nothing is counts for nothing."""

    def __init__(self, header: RequestHeader, order: BatchOrder) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._order = order
        self._cut = ProduceCut(self._header)
        self._charges: list[Charge] = []

    def on_request(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Verdict:
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
        if isinstance(verdict, Answer) and exchange.client is not None:
            limiter, length = exchange.client.produce, exchange.frame_length
            limiter.unrecord(length, now_ms)
            self._charges.append((limiter, -length))
        return verdict

    def on_told(self, frame: bytearray, exchange: Exchange, now_ms: int) -> None:
        """Nothing: nothing is asked."""

    def on_response(self, frame: bytearray, exchange: Exchange, now_ms: int) -> Buffer:
        """The response with the results of what came too early in it."""
        del now_ms
        return self._cut.response(frame, exchange)

    def charges(self) -> Sequence[Charge]:
        """What was given back since this was asked last."""
        charges, self._charges = self._charges, []
        return charges

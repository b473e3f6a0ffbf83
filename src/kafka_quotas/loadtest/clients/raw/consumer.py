"""A raw consumer: reads a topic's records over and over, one Fetch per connection at a time.

It restarts at a partition's first record after the last one that was there at the start. A quota is charged with the
whole response, and with nothing where the broker withheld the records because the quota was exceeded: brokers answer
such a fetch empty, the daemon passes its records on unless configured otherwise.
**Source:** `KafkaApis.handleFetchRequest` (`FetchResponse.sizeOf`, `unrecordQuotaSensor`), Kafka 4.1.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from kafka_quotas.loadtest.clients.cluster_check import PartitionRange
from kafka_quotas.loadtest.clients.engine import RunClock, WireCount
from kafka_quotas.loadtest.clients.raw.connected_client import ConnectedClient
from kafka_quotas.loadtest.clients.raw.connection import InFlight, Leaders, RawConnection
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.wire.client.records import (
    BATCH_HEAD_BYTES,
    FETCH_VERSION,
    FetchAnswer,
    FetchedPartition,
    FetchRequest,
    read_records_answer,
)
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.protocol.api_table import ErrorCode, error_name

_MAX_WAIT_MS: Final = 50
_RECORD_OVERHEAD: Final = 12


class RawConsumer(ConnectedClient):
    """One raw consumer of a run, for the partitions that held records before it."""

    def __init__(
        self,
        plan: LoadPlan,
        entity: ClientLoad,
        clock: RunClock,
        leaders: Leaders,
        partitions: Sequence[PartitionRange],
    ) -> None:
        super().__init__(plan, entity, clock, leaders)
        self.most_in_flight = 1  # two fetches of one offset would bring the same records
        self._ranges: Mapping[int, PartitionRange] = {each.partition: each for each in partitions}
        self._offsets = {each.partition: each.low for each in partitions}
        self._most_bytes = entity.request_bytes
        self._wire_bytes = 0

    def shares(self, partitions: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Divide the partitions with records among the connections to one broker, each to one connection."""
        filled = [each for each in partitions if each in self._ranges]
        shares = (tuple(filled[first :: self.entity.connections]) for first in range(self.entity.connections))
        return [share for share in shares if share]

    def send_due(self, now_ns: int) -> None:
        for connection in list(self.connections):
            if not self.is_free(connection, now_ns):
                continue
            due = self.pacer.due(now_ns, most=self._most_bytes)
            if due <= 0:
                break
            self._ask(connection, due, now_ns)
        self.wake_when_due(now_ns)

    def abandoned(self, connection: RawConnection) -> None:
        """Forget the fetches in flight, which lose nothing: the next ones start at the same offsets."""
        connection.in_flight.clear()

    def _ask(self, connection: RawConnection, due: int, now_ns: int) -> None:
        wanted = self._most_bytes
        if not self.pacer.is_unpaced:
            wanted = min(wanted, due * (self.entity.record_size + _RECORD_OVERHEAD) + BATCH_HEAD_BYTES)
        fetch = FetchRequest(
            topic=self.entity.topic,
            offsets={partition: self._offsets[partition] for partition in self.connections[connection]},
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=wanted,
        )
        connection.request(fetch, FETCH_VERSION, self._answered, now_ns=now_ns)

    def _answered(self, connection: RawConnection, frame: bytes, request: InFlight) -> None:
        now_ns = time.monotonic_ns()
        answer: FetchAnswer = read_records_answer(request.matter, frame)
        records = self._taken(answer)
        # A broker empties a fetch over the quota and takes its charge back.
        withheld = answer.throttle_ms > 0 and not records
        charged = 0 if withheld else len(frame) - FRAME_LENGTH_BYTES
        self.recorder.response(now_ns, charged=charged, throttle_ms=answer.throttle_ms, broker=connection.broker)
        if records:
            self._count(records, request.sent_ns, now_ns)
            self._wire_bytes += len(frame)
            payload_bytes = self.recorder.acked_bytes
            self.wire = WireCount(wire_bytes=self._wire_bytes, payload_bytes=payload_bytes)
        self.proceed(connection, now_ns, answer.throttle_ms)

    def _taken(self, answer: FetchAnswer) -> int:
        if answer.error_code:
            self.recorder.failed(error_name(answer.error_code))
        records = 0
        for each in answer.partitions:
            if each.error_code:
                self._refused(each)
            elif each.next_offset is not None and each.partition in self._ranges:
                records += each.records
                known = self._ranges[each.partition]
                self._offsets[each.partition] = each.next_offset if each.next_offset < known.high else known.low
        return records

    def _count(self, records: int, sent_ns: int, now_ns: int) -> None:
        intended_ns = self.pacer.intended_ns(self.pacer.taken, sent_ns)
        self.pacer.taken += records
        self.recorder.sent += records
        self.recorder.acknowledged(now_ns, records=records, size=records * self.entity.record_size)
        if self.pacer.is_unpaced:
            self.recorder.latency(intended_ns=sent_ns, sent_ns=sent_ns, acked_ns=now_ns)
        else:
            self.recorder.arrival(intended_ns=min(intended_ns, now_ns), arrived_ns=now_ns)

    def _refused(self, part: FetchedPartition) -> None:
        code = part.error_code
        # Retention deleted the next records to read.
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset >= 0:
            known = self._ranges[part.partition]
            self._offsets[part.partition] = max(part.log_start_offset, known.low)
        else:
            self.refused(code, operation="Read")

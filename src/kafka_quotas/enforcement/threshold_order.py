"""Keeps numbered batches in order around a refused one, as the log of a partition does.

A producer that numbers its batches has several under way. Once one of them is refused those behind it can't be taken
either: a log that knows the producer refuses them as out of order, but one that never saw it takes whatever comes first
and refuses the earlier batch for good when it comes again. So they are refused here, until the batch comes again, or
the producer begins anew under another epoch.
Invariants: at most `MAX_HELD` partitions of producers are remembered, the latest.
**Source:** KIP-98; `ProducerAppendInfo.checkSequence` (Kafka 4.0).
"""

from typing import Final, TypeAlias

from kafka_quotas.wire.produce_partitions import PartitionKey, Sequenced

MAX_HELD: Final = 10_000
_SEQUENCES: Final = 2**31
"""Sequence numbers go up to this and start again at 0."""

_Place: TypeAlias = tuple[int, PartitionKey]


class ThresholdOrder:
    """The first refused batch of each producer and partition, while those behind it are refused."""

    def __init__(self) -> None:
        self._held: dict[_Place, tuple[int, int]] = {}

    def is_behind_refused(self, partition: PartitionKey, batch: Sequenced) -> bool:
        """Whether a batch comes behind one that was refused."""
        held = self._held.get((batch.producer_id, partition))
        if held is None or held[0] != batch.epoch:
            return False
        ahead = (batch.first - held[1]) % _SEQUENCES
        return 0 < ahead < _SEQUENCES // 2

    def refused(self, partition: PartitionKey, batch: Sequenced) -> None:
        """Nothing; this batch was refused, and those behind it will be."""
        place = (batch.producer_id, partition)
        self._held.pop(place, None)
        while len(self._held) >= MAX_HELD:
            self._held.pop(next(iter(self._held)))
        self._held[place] = (batch.epoch, batch.first)

    def admitted(self, partition: PartitionKey, batch: Sequenced) -> None:
        """Nothing; this batch, which `is_behind_refused` let pass, goes on, and those behind it may."""
        if self._held:
            self._held.pop((batch.producer_id, partition), None)

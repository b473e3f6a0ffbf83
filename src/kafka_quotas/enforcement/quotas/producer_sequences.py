"""Keeps numbered batches in order around a refused one, as the log of a partition does.

A producer that numbers its batches has several under way. Once one of them is refused those behind it can't be taken
either: a log that knows the producer refuses them as out of order, but one that never saw it takes whatever comes first
and refuses the earlier batch for good when it comes again. So they are refused here, until the batch comes again, or
the producer begins anew under another epoch.
Invariants: at most `MAX_HELD` partitions of producers are remembered, the latest, and `MAX_BATCHES` of each, the
earliest; a batch that did not come again for `HELD_MS` is forgotten, so that nobody waits for it for ever.
**Source:** KIP-98; `ProducerAppendInfo.checkSequence` (Kafka 4.0).
"""

from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.wire.passing.produce_request import PartitionKey, Sequenced

MAX_HELD: Final = 10_000
MAX_BATCHES: Final = 16
"""More than a producer that numbers its batches may have under way, which is five."""
HELD_MS: Final = 600_000
"""Longer than producers try a batch again (`delivery.timeout.ms`: two minutes, librdkafka's five)."""
_SEQUENCES: Final = 2**31
"""Sequence numbers go up to this and start again at 0."""

_Place: TypeAlias = tuple[int, PartitionKey]


class _Missing(NamedTuple):
    """The refused batches of one producer's partition: its epoch, and when each (by first number) was refused last."""

    epoch: int
    batches: dict[int, int]


class ProducerSequences:
    """The refused batches of each producer and partition at one broker, until they come again."""

    def __init__(self) -> None:
        self._missing: dict[_Place, _Missing] = {}

    def holds_any(self, now_ms: int) -> bool:
        """Whether any batch may be behind a refused one."""
        while self._missing:
            place, missing = next(iter(self._missing.items()))
            if any(now_ms - refused_ms < HELD_MS for refused_ms in missing.batches.values()):
                return True
            del self._missing[place]
        return False

    def is_behind_refused(self, partition: PartitionKey, batch: Sequenced, now_ms: int) -> bool:
        """Whether a batch comes behind one that was refused, and is to be refused as well."""
        missing = self._missing.get((batch.producer_id, partition))
        if missing is None or missing.epoch != batch.epoch:
            return False
        return any(
            0 < _distance(first, batch.first) < _SEQUENCES // 2 and now_ms - refused_ms < HELD_MS
            for first, refused_ms in missing.batches.items()
        )

    def refused(self, partition: PartitionKey, batch: Sequenced, now_ms: int) -> None:
        """Nothing; this batch was refused, for whatever reason, and those behind it will be until it comes again."""
        place = (batch.producer_id, partition)
        missing = self._missing.pop(place, None)
        known = missing.batches if missing is not None and missing.epoch == batch.epoch else {}
        batches = {first: at_ms for first, at_ms in known.items() if now_ms - at_ms < HELD_MS} | {batch.first: now_ms}
        if len(batches) > MAX_BATCHES:
            del batches[max(batches, key=lambda first: _distance(batch.first - _SEQUENCES // 2, first))]
        while len(self._missing) >= MAX_HELD:
            self._missing.pop(next(iter(self._missing)))
        self._missing[place] = _Missing(batch.epoch, batches)

    def admitted(self, partition: PartitionKey, batch: Sequenced) -> None:
        """Nothing; this batch, which `is_behind_refused` let pass, goes on, and is missing no more."""
        place = (batch.producer_id, partition)
        missing = self._missing.get(place)
        if missing is None:
            return
        missing.batches.pop(batch.first, None)
        if not missing.batches or missing.epoch != batch.epoch:
            del self._missing[place]


def _distance(first: int, other: int) -> int:
    """How far a sequence number is ahead of another."""
    return (other - first) % _SEQUENCES

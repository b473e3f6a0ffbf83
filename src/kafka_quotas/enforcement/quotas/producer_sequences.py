"""The order of an idempotent producer's numbered batches after a refused one, as the log of a partition keeps it.

Such a producer has several batches in flight. Once the daemon refuses one of them the broker must not take those after
it: a log that knows the producer refuses them as out of order, but one that never saw it takes the first that comes and
refuses the earlier batch for good when it comes again. So the daemon refuses them until the batch comes again, or the
producer starts a new epoch.
Invariants: at most `MAX_HELD` partitions of producers are kept, the latest, and `MAX_BATCHES` of each, the earliest; a
batch that does not come again for `HELD_MS` is dropped, so that later ones do not wait for it for ever.

**Source:** KIP-98; `ProducerAppendInfo.checkSequence` (Kafka 4.0).
"""

from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.wire.passing.produce_request import PartitionKey, Sequenced

MAX_HELD: Final = 10_000
"""Most partitions of producers that are kept."""
MAX_BATCHES: Final = 16
"""Most refused batches per partition: more than the five that an idempotent producer may have in flight."""
HELD_MS: Final = 600_000
"""Time that a refused batch is kept: longer than producers retry it (`delivery.timeout.ms`: two minutes, librdkafka:
five)."""
_SEQUENCES: Final = 2**31
"""The number of sequence numbers, after which they start again at 0."""

_ProducerPartition: TypeAlias = tuple[int, PartitionKey]


class _Missing(NamedTuple):
    """The refused batches of one producer in one partition."""

    epoch: int
    batches: dict[int, int]
    """First sequence number -> time of the last refusal (ms)."""


class ProducerSequences:
    """The refused batches of each producer and partition at one broker, until they come again."""

    def __init__(self) -> None:
        self._missing: dict[_ProducerPartition, _Missing] = {}

    def holds_any(self, now_ms: int) -> bool:
        """Return whether any batch may follow a refused one, and drop the entries that are too old."""
        while self._missing:
            producer, missing = next(iter(self._missing.items()))
            if any(now_ms - refused_ms < HELD_MS for refused_ms in missing.batches.values()):
                return True
            del self._missing[producer]
        return False

    def follows_refused(self, partition: PartitionKey, batch: Sequenced, now_ms: int) -> bool:
        """Return whether a batch follows a refused one and has to be refused as well."""
        missing = self._missing.get((batch.producer_id, partition))
        if missing is None or missing.epoch != batch.epoch:
            return False
        # Numbers wrap around: the half of their range after the refused one counts as later.
        return any(
            0 < _distance(first, batch.first) < _SEQUENCES // 2 and now_ms - refused_ms < HELD_MS
            for first, refused_ms in missing.batches.items()
        )

    def refused(self, partition: PartitionKey, batch: Sequenced, now_ms: int) -> None:
        """Record that a batch was refused: `follows_refused` holds for those after it until it comes again."""
        producer = (batch.producer_id, partition)
        missing = self._missing.pop(producer, None)
        known = missing.batches if missing is not None and missing.epoch == batch.epoch else {}
        batches = {first: at_ms for first, at_ms in known.items() if now_ms - at_ms < HELD_MS} | {batch.first: now_ms}
        if len(batches) > MAX_BATCHES:
            del batches[max(batches, key=lambda first: _distance(batch.first - _SEQUENCES // 2, first))]
        while len(self._missing) >= MAX_HELD:
            self._missing.pop(next(iter(self._missing)))
        self._missing[producer] = _Missing(batch.epoch, batches)

    def admitted(self, partition: PartitionKey, batch: Sequenced) -> None:
        """Record that a batch which follows no refused one passes, so that later ones don't wait for it."""
        producer = (batch.producer_id, partition)
        missing = self._missing.get(producer)
        if missing is None:
            return
        missing.batches.pop(batch.first, None)
        if not missing.batches or missing.epoch != batch.epoch:
            del self._missing[producer]


def _distance(first: int, other: int) -> int:
    """Return how far `other` is after `first`, modulo the range of sequence numbers."""
    return (other - first) % _SEQUENCES

"""The order of an idempotent producer's numbered batches after a refused one, as the log of a partition keeps it.

Such a producer has several batches in flight. Once the daemon refuses one of them the broker must not take those after
it: a log that knows the producer refuses them as out of order, but one that never saw it takes the first that comes and
refuses the earlier batch for good when it comes again. So the daemon refuses them until the batch comes again, or the
producer starts a new epoch.

The broker never sees a refused batch, so nobody has checked whether its producer id is the client's own, or whether it
may write to the topic: what a client was refused concerns batches of the same user and client-id only.
Invariants: at most `MAX_HELD` partitions of producers are kept, the latest of each user, and `MAX_BATCHES` of each, the
earliest; beyond that the user with the most gives way; a batch that does not come again for `HELD_MS` is dropped, so
that later ones do not wait for it for ever.

**Source:** KIP-98; `ProducerAppendInfo.checkSequence` (Kafka 4.0).
"""

from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.wire.proxying.produce import PartitionKey, Sequenced

MAX_HELD: Final = 10_000
MAX_BATCHES: Final = 16
"""Most refused batches per partition: more than the five that an idempotent producer may have in flight."""
HELD_MS: Final = 600_000
"""Time that a refused batch is kept: longer than producers retry it (`delivery.timeout.ms`: two minutes, librdkafka:
five)."""
_SEQUENCES: Final = 2**31
"""The number of sequence numbers, after which they start again at 0."""

ClientName: TypeAlias = tuple[str, str]
_ProducerPartition: TypeAlias = tuple[str, int, PartitionKey]


class _Missing(NamedTuple):
    epoch: int
    batches: dict[int, int]
    """First sequence number -> time of the last refusal (ms)."""


class ProducerSequences:
    """The refused batches of each producer and partition at one broker, until they come again."""

    def __init__(self) -> None:
        self._missing: dict[str, dict[_ProducerPartition, _Missing]] = {}
        self._held = 0

    def holds_any(self, now_ms: int) -> bool:
        """Return whether any batch may follow a refused one, and drop the entries that are too old."""
        while self._missing:
            user, held = next(iter(self._missing.items()))
            producer, missing = next(iter(held.items()))
            if any(now_ms - refused_ms < HELD_MS for refused_ms in missing.batches.values()):
                return True
            self._drop(user, producer)
        return False

    def follows_refused(self, client: ClientName, partition: PartitionKey, batch: Sequenced, now_ms: int) -> bool:
        """Return whether a batch follows a refused one and has to be refused as well."""
        missing = self._of(client, partition, batch)
        if missing is None or missing.epoch != batch.epoch:
            return False
        # Numbers wrap around: the half of their range after the refused one counts as later.
        return any(
            0 < _distance(first, batch.first) < _SEQUENCES // 2 and now_ms - refused_ms < HELD_MS
            for first, refused_ms in missing.batches.items()
        )

    def refused(self, client: ClientName, partition: PartitionKey, batch: Sequenced, now_ms: int) -> None:
        """Record that a batch was refused: `follows_refused` holds for those after it until it comes again."""
        (user, client_id), missing = client, self._of(client, partition, batch)
        producer = (client_id, batch.producer_id, partition)
        known = missing.batches if missing is not None and missing.epoch == batch.epoch else {}
        batches = {first: at_ms for first, at_ms in known.items() if now_ms - at_ms < HELD_MS} | {batch.first: now_ms}
        if len(batches) > MAX_BATCHES:
            del batches[max(batches, key=lambda first: _distance(batch.first - _SEQUENCES // 2, first))]
        if missing is not None:
            self._drop(user, producer)
        elif self._held >= MAX_HELD:
            # Several at once, for the search looks at all users.
            most = max(self._missing, key=lambda each: len(self._missing[each]))
            for each in list(islice(self._missing[most], 1 + len(self._missing[most]) // 10)):
                self._drop(most, each)
        self._missing.setdefault(user, {})[producer] = _Missing(batch.epoch, batches)
        self._held += 1

    def admitted(self, client: ClientName, partition: PartitionKey, batch: Sequenced) -> None:
        """Record that a batch which follows no refused one passes, so that later ones don't wait for it."""
        missing = self._of(client, partition, batch)
        if missing is None:
            return
        missing.batches.pop(batch.first, None)
        if not missing.batches or missing.epoch != batch.epoch:
            self._drop(client[0], (client[1], batch.producer_id, partition))

    def _of(self, client: ClientName, partition: PartitionKey, batch: Sequenced) -> _Missing | None:
        held = self._missing.get(client[0])
        return None if held is None else held.get((client[1], batch.producer_id, partition))

    def _drop(self, user: str, producer: _ProducerPartition) -> None:
        held = self._missing[user]
        del held[producer]
        self._held -= 1
        if not held:
            del self._missing[user]


def _distance(first: int, other: int) -> int:
    """Return how far `other` is after `first`, modulo the range of sequence numbers."""
    return (other - first) % _SEQUENCES

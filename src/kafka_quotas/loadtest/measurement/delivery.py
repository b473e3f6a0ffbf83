"""Delivery check: whether each acknowledged record is in the topic, and once; and the account of all arrivals.

Contract: pure. A record begins with its stamp: the run's id, the index of its client in the plan, and its number, which
counts from 0. Stamps of other runs, and records without a stamp, are skipped.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafka_quotas.loadtest.judgement import State

STAMP: Final = Struct(">QIQ")
"""Run id, index of the client in the plan and number of the record, all big-endian."""
STAMP_SIZE: Final = STAMP.size
"""20 bytes at the start of a record's value, as shorter records have no stamp and can't be checked."""
SEQUENCE_SIZE: Final = 8
"""Bytes of the record's number, the last ones of its stamp, big-endian."""
_GROWTH: Final = 4096
_RUN_ID_MASK: Final = 2**64 - 1


def stamp(run_id: int, entity: int, sequence: int) -> bytes:
    """Return the first bytes of a record: its run (64 bits), the index of its client, its number."""
    return STAMP.pack(run_id & _RUN_ID_MASK, entity, sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The counts from reading the topic back, for one client."""

    acked: int = 0
    """The number of acknowledged records."""
    found: int = 0
    """The number of different records."""
    lost: int = 0
    """The number of acknowledged records that are not there."""
    duplicated: int = 0
    missing: int = 0
    """The number of records that are not there, unanswered ones included."""
    unchecked: str = ""
    """Why the counts are incomplete, empty where they are complete."""

    @property
    def state(self) -> State:
        """Met where no record was lost or duplicated."""
        if self.unchecked and not self.duplicated and not self.lost:
            return State.UNCHECKED
        return State.NOT_MET if self.lost or self.duplicated else State.MET

    @property
    def evidence(self) -> str:
        """The counts, in a sentence."""
        read = f"{self.found} records read back of {self.acked} acknowledged"
        counts = f"{read}, {self.lost} lost, {self.duplicated} duplicated"
        if not self.unchecked:
            return counts
        return f"{counts}; not all could be checked: {self.unchecked}" if self.found else self.unchecked


class Unwatched:
    """The acknowledgements of a client that are known for a part of its records only.

    librdkafka reports a record only where that was requested: at a high rate for a sample, and from the first failure
    on for every record. Once a record was refused, the others may have been acknowledged or refused.
    """

    def __init__(self) -> None:
        self._confirmed = bytearray()
        self.count = 0
        """Records without a report, which may have been refused, 0 where no failure was seen at all."""

    def confirm(self, sequence: int) -> None:
        """Record the acknowledgement of a watched record."""
        byte = sequence >> 3
        if byte >= len(self._confirmed):
            self._confirmed.extend(bytes(byte + _GROWTH - len(self._confirmed)))
        self._confirmed[byte] |= 1 << (sequence & 7)

    def confirmed_outside(self, seen: bytes | bytearray) -> int:
        """Return how many acknowledged records are not among the seen ones, which have a bit each."""
        confirmed, there = int.from_bytes(self._confirmed, "little"), int.from_bytes(seen, "little")
        return (confirmed & ~there).bit_count()


class StampCounter:
    """The stamps of one run that were read, with one bit for each of the `sent` records of a client."""

    def __init__(self, *, run_id: int, sent: dict[int, int]) -> None:
        self._run_id = run_id & _RUN_ID_MASK
        self._seen = {entity: bytearray(count // 8 + 1) for entity, count in sent.items()}
        self._limits = dict(sent)
        self._found = dict.fromkeys(sent, 0)
        self._duplicated = dict.fromkeys(sent, 0)
        self._last: dict[int, dict[int, int]] = {entity: {} for entity in sent}
        self._others = 0

    def count(self, value: bytes | None, partition: int = 0) -> None:
        """Count a record of a partition, where it is one of this run."""
        if value is None or len(value) < STAMP_SIZE:
            self._others += 1
            return
        run_id, entity, sequence = STAMP.unpack_from(value)
        if run_id != self._run_id or sequence >= self._limits.get(entity, 0):
            self._others += 1
            return
        seen, bit = self._seen[entity], 1 << (sequence & 7)
        if seen[sequence >> 3] & bit:
            self._duplicated[entity] += 1
        else:
            seen[sequence >> 3] |= bit
            self._found[entity] += 1
            last = self._last[entity]
            last[partition] = max(sequence, last.get(partition, 0))

    def is_unstamped(self, entity: int) -> bool:
        """Return whether there were records without any of this run, although the client sent some."""
        return self._others > 0 and not any(self._found.values()) and entity in self._found

    def _holes(self, entity: int) -> int:
        before = min(self._last[entity].values(), default=0)
        there = int.from_bytes(self._seen[entity][: before // 8 + 1], "little") & ((1 << before) - 1)
        return before - there.bit_count()

    def delivery(
        self,
        entity: int,
        *,
        acked: int,
        unchecked: str = "",
        unwatched: Unwatched | None = None,
        is_in_order: bool = False,
    ) -> Delivery:
        """Return the counts for one client.

        A record that was never answered may be there or not. So the lost records are the acknowledged ones that are
        missing even if every unanswered one is missing too. Where none failed and each partition has its records
        `is_in_order`, unanswered ones are the last of their partitions, and those missing before were lost.

        Where not all was read, for the reason `unchecked`, no record counts as lost. Where records may have been
        refused without a report, the lost ones are the missing ones whose acknowledgement `unwatched` knows.
        """
        found, sent = self._found[entity], self._limits[entity]
        missing = sent - found
        lost = 0 if unchecked else max(missing - max(sent - acked, 0), self._holes(entity) if is_in_order else 0)
        if lost and unwatched is not None and unwatched.count:
            certain = unwatched.confirmed_outside(self._seen[entity])
            doubtful, lost = max(lost - certain, 0), certain
            if doubtful:
                unchecked = f"{doubtful} more are missing, and were refused or lost before refusals were watched"
        return Delivery(
            acked=acked,
            found=found,
            lost=lost,
            duplicated=self._duplicated[entity],
            missing=missing,
            unchecked=unchecked,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The outcome of the records, requests, topics or connections of one client, in the whole run.

    A client without a schedule, or in a closed loop, has nothing due but what it sent.
    """

    due: int
    """Those that were due by the end of the client's part of the run, counted by its schedule."""
    acknowledged: int
    failed: int
    unsent: int
    """Those that were due and never sent, dropped ones included."""
    unanswered: int
    """Those that were sent and had no answer at the end."""
    doubtful: int = 0
    """Of the acknowledged, those that may have been refused: librdkafka reports what it watches alone."""
    settled: int = 0
    """Those of a schedule that were due so long before the end that they should have an answer."""

    @property
    def unaccounted(self) -> int:
        """The difference between what was due and the sum of the rest, 0 where the load tester counts right."""
        return self.due - (self.acknowledged + self.failed + self.unsent + self.unanswered)

    @property
    def evidence(self) -> str:
        """The equation, in one line."""
        equation = (
            f"{self.due:,} due = {self.acknowledged:,} acknowledged + {self.failed:,} failed + {self.unsent:,} unsent"
            f" + {self.unanswered:,} unanswered"
        )
        if not self.doubtful:
            return equation
        doubt = f"up to {self.doubtful} of the acknowledged may have been refused before refusals were watched"
        return f"{equation}; {doubt}"

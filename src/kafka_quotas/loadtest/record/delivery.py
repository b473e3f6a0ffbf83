"""Whether what was acknowledged is in the topic, once: the sequence numbers in its records, counted.

Contract: pure. A record begins with its stamp: the run's id, the index of its client in the plan, and its number, which
counts from 0. Stamps of other runs, and records that hold none, are passed over.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafka_quotas.loadtest.judgement import State

STAMP: Final = Struct(">QIQ")
"""Run id, index of the client in the plan, number of the record; all big-endian."""
STAMP_SIZE: Final = STAMP.size
"""20 bytes at the start of a record's value; shorter records carry no stamp and can't be checked."""
SEQUENCE_SIZE: Final = 8
"""Bytes of the record's number, the last ones of its stamp, big-endian."""
_GROWTH: Final = 4096
_RUN_ID_MASK: Final = 2**64 - 1


def stamp(run_id: int, entity: int, sequence: int) -> bytes:
    """The first bytes of a record: run id (as 64 bits), index of the client in the plan, number of the record."""
    return STAMP.pack(run_id & _RUN_ID_MASK, entity, sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What reading the topic back told of one client.

    `found` different records, `duplicated` copies beyond the first, `lost` of those acknowledged; `missing` numbers
    are not there at all, the unanswered ones included. `unchecked` is why it could not be told, empty where it could.
    """

    found: int = 0
    lost: int = 0
    duplicated: int = 0
    missing: int = 0
    unchecked: str = ""

    @property
    def state(self) -> State:
        """Whether nothing was lost or doubled."""
        if self.unchecked and not self.duplicated and not self.lost:
            return State.UNCHECKED
        return State.NOT_MET if self.lost or self.duplicated else State.MET

    @property
    def evidence(self) -> str:
        """What was counted, in a sentence."""
        told = f"{self.found} records read back, {self.lost} lost, {self.duplicated} duplicated"
        if not self.unchecked:
            return told
        return f"{told}; not all could be checked: {self.unchecked}" if self.found else self.unchecked


class Unwatched:
    """What is known of a client's records of which only some tell what became of them.

    librdkafka reports a record where that was asked for: at a high rate a sample, from the first failure seen on every
    record. Of the others nobody knows whether they were acknowledged or refused, once any was refused.
    """

    def __init__(self) -> None:
        self._confirmed = bytearray()
        self.count = 0
        """Records that were not watched, and may have been refused; 0 where no failure was seen at all."""

    def confirm(self, sequence: int) -> None:
        """Note that a record that was watched was acknowledged."""
        place = sequence >> 3
        if place >= len(self._confirmed):
            self._confirmed.extend(bytes(place + _GROWTH - len(self._confirmed)))
        self._confirmed[place] |= 1 << (sequence & 7)

    def confirmed_outside(self, seen: bytes | bytearray) -> int:
        """Return how many of those acknowledged for certain are not among the seen ones, a bit for each record."""
        confirmed, there = int.from_bytes(self._confirmed, "little"), int.from_bytes(seen, "little")
        return (confirmed & ~there).bit_count()


class StampCounter:
    """The stamps of one run as they are read, in one bit per record sent."""

    def __init__(self, *, run_id: int, sent: dict[int, int]) -> None:
        self._run_id = run_id & _RUN_ID_MASK
        self._seen = {entity: bytearray(count // 8 + 1) for entity, count in sent.items()}
        self._limits = dict(sent)
        self._found = dict.fromkeys(sent, 0)
        self._duplicated = dict.fromkeys(sent, 0)
        self._others = 0

    def count(self, value: bytes | None) -> None:
        """Nothing; the record is counted where it is one of this run."""
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

    def is_unstamped(self, entity: int) -> bool:
        """Whether there were records, and none of them was this client's or any other's of this run."""
        return self._others > 0 and not any(self._found.values()) and entity in self._found

    def delivery(self, entity: int, *, acked: int, unchecked: str = "", unwatched: Unwatched | None = None) -> Delivery:
        """Return what was counted of a client of which `acked` records were acknowledged.

        A record that was never answered may be there or not. So those lost are the acknowledged ones that are missing
        even if every unanswered one is missing too. Where a record may have been refused unseen (`unwatched`), those
        lost are the missing ones that were acknowledged for certain. With `unchecked` (not all was read) none is lost.
        """
        found, sent = self._found[entity], self._limits[entity]
        missing = sent - found
        lost = 0 if unchecked else max(missing - max(sent - acked, 0), 0)
        if lost and unwatched is not None and unwatched.count:
            certain = unwatched.confirmed_outside(self._seen[entity])
            doubtful, lost = max(lost - certain, 0), certain
            if doubtful:
                unchecked = f"{doubtful} more are missing, and were refused or lost before refusals were watched"
        return Delivery(
            found=found, lost=lost, duplicated=self._duplicated[entity], missing=missing, unchecked=unchecked
        )

"""A connection that is cut after every byte of a known exchange, on either side of the daemon and in either direction.

What a client is charged with is known for each cut: requests that came whole, as a broker charges them.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path

from tests.chaos.network import Network
from tests.support.brokers.fake_broker import TIMEOUT_S, connected
from tests.support.daemon.fault_proxy import Ending, Fault, Faults
from tests.support.frames.recorded_exchange import FETCHED, PRODUCED_UNANSWERED, converse, steps

HEAD_BYTES = 8
"""Of a response: its length and correlation id."""
FETCH_CHARGE = FETCHED - 4


class Side(Enum):
    """Between whom the connection is cut."""

    CLIENT = "c"
    BROKER = "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One cut: where, in which direction, after how many bytes, and how."""

    side: Side
    is_request: bool
    after: int
    ending: Ending

    @property
    def client_id(self) -> str:
        """The name of the client that meets it: six letters."""
        direction = "q" if self.is_request else "s"
        return f"{self.side.value}{direction}{self.ending.name[0]}{self.after:03d}"

    @property
    def faults(self) -> Faults:
        """What the proxy on its side does."""
        fault = Fault(cut_after=self.after, ending=self.ending)
        return Faults(to_upstream=fault) if self.is_request else Faults(to_client=fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """What may have been charged: any of these numbers of bytes."""

    produced: frozenset[int]
    fetched: frozenset[int]


def every_cut(endings: Sequence[Ending], *, stride: int = 1) -> Iterator[Cut]:
    """Yield a cut after each `stride`th byte of the exchange, at both sides of the daemon and in both directions."""
    plan = steps("anyone")
    totals = {True: sum(len(step.data) for step in plan), False: sum(step.answer for step in plan)}
    for side in Side:
        for is_request, total in totals.items():
            for after in range(0, total + 1, stride):
                for ending in endings:
                    yield Cut(side=side, is_request=is_request, after=after, ending=ending)


def cut_through(network: Network, cut: Cut) -> int:
    """Go through the exchange until it is cut.

    Returns how many bytes passed the place of the cut in its direction.
    """
    is_at_client = cut.side is Side.CLIENT
    near = network.client_side if is_at_client else network.broker_side
    (network.next_client if is_at_client else network.next_broker).faults = cut.faults
    before = len(near.passages)
    with suppress(ConnectionError), connected(network.client_side.address) as client:  # reset before it was made
        converse(client, cut.client_id)
    passage = near.passages[before]
    assert passage.ended.wait(TIMEOUT_S), "the proxy does not end the connection"
    return passage.to_upstream if cut.is_request else passage.to_client


def expected(cut: Cut) -> Charged:
    """Return what the client of a cut may have been charged with, as the daemon stands in front of the broker."""
    plan = steps(cut.client_id)
    lengths = [len(step.data) if cut.is_request else step.answer for step in plan]
    starts = [0, *accumulate(lengths)]
    if cut.side is Side.CLIENT and cut.is_request:
        produced = sum(amount for end, amount in produce_ends(cut.client_id) if end <= cut.after)
        return Charged(produced=frozenset({produced}), fetched=some(cut.after == starts[-1]))
    if cut.is_request:  # what the client wrote is whole at the daemon, whatever the broker gets of it
        sent = [step for step, start in zip(plan, starts, strict=False) if start < cut.after]
        # Of a request that came whole the answer may be back before the end is seen, and the next one be written.
        some_sent = (sent, plan[: len(sent) + 1]) if cut.after in starts[1:] else (sent,)
        produced_by = frozenset(sum(step.produced for step in each) for each in some_sent)
        return Charged(produced=produced_by, fetched=some(cut.after == starts[-1]))
    passed = [step for step, start in zip(plan, starts, strict=False) if start < cut.after]
    produced = sum(step.produced for step in (passed or plan[:1]))
    if cut.side is Side.CLIENT:  # the answers are whole at the daemon
        is_fetched = cut.after > starts[-2]
        return Charged(produced=frozenset({produced}), fetched=frozenset({FETCH_CHARGE if is_fetched else 0}))
    after_next = sum(step.produced for step in plan[: len(passed) + 1])  # it may be written before the end is seen
    is_at_end = cut.after in starts
    whole = frozenset({FETCH_CHARGE}) if cut.after == starts[-1] else some(cut.after >= starts[-2] + HEAD_BYTES)
    return Charged(produced=frozenset({produced, after_next} if is_at_end else {produced}), fetched=whole)


def produce_ends(client_id: str) -> Iterator[tuple[int, int]]:
    """Yield where in the client's bytes each Produce ends, and what it is charged with."""
    metadata, first, _ = steps(client_id)
    end = len(metadata.data) + len(first.data)
    yield end, first.produced
    yield end + PRODUCED_UNANSWERED, PRODUCED_UNANSWERED - 4


def some(may_be: bool) -> frozenset[int]:
    """Return nothing, or what may have been charged for the Fetch as well."""
    return frozenset({0, FETCH_CHARGE} if may_be else {0})


def is_right(found: Charged | None, cut: Cut) -> bool:
    """Return whether what a client was charged with (None: nothing) is what may have been."""
    wanted = expected(cut)
    if found is None:
        return 0 in wanted.produced and 0 in wanted.fetched
    return found.produced <= wanted.produced and found.fetched <= wanted.fetched


def charged(events: Path) -> dict[str, Charged]:
    """Return what each client was charged with, by the event log of a daemon that has ended."""
    produced: Counter[str] = Counter()
    fetched: Counter[str] = Counter()
    for file in events.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            kind = produced if event["quota_type"] == "produce" else fetched
            kind[event["client_id"]] += event["bytes"]
    return {
        name: Charged(produced=frozenset({produced[name]}), fetched=frozenset({fetched[name]}))
        for name in produced.keys() | fetched.keys()
    }

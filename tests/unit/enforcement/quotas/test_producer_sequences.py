"""Numbered batches behind refused ones: nothing passes in front of what has to come again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.brokers.topic_broker import Client, TopicBroker
from tests.support.frames.enforcement import CLIENT_ID, START_MS, Pair
from tests.support.frames.numbered_batch import batch, sequence_of

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import OnViolation
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.quotas.producer_sequences import HELD_MS, MAX_BATCHES, MAX_HELD, ProducerSequences
from kafka_quotas.wire.proxying.produce import Sequenced

OUT_OF_ORDER, QUOTA_EXCEEDED = 45, 89
APP, MALLORY = ("alice", "app"), ("mallory", "app")
IN_FLIGHT = 5


class Producer(Client):
    """A client with 1000 bytes/s that is refused while it is over.

    The broker never saw a producer before.
    """

    def __init__(self, on_violation: OnViolation = OnViolation.ERROR, *, max_throttle_ms: int | None = None) -> None:
        self.charges: list[Charge] = []
        pair = Pair(
            quotas={QuotaType.PRODUCE: 1000.0},
            on_violation=on_violation,
            max_throttle_ms=max_throttle_ms,
            on_charge=self.charges.append,
        )
        super().__init__(pair, TopicBroker(topics={"t": 2}))

    def codes(self, version: int, *batches: tuple[int, bytes]) -> list[int]:
        """The error codes of some partitions' batches, in their order."""
        results = self.produce(version, *(("t", index, data) for index, data in batches), acks=-1)
        assert results is not None
        return [code for *_, code in results]

    def taken(self, partition: int = 0) -> list[int]:
        """The sequence numbers that the broker took, in its order."""
        return [sequence_of(records) for _, index, records in self.broker.taken if index == partition]

    @property
    def measured(self) -> float | None:
        """Bytes per second that count."""
        return self.pair.broker.client("ANONYMOUS", CLIENT_ID).produce.peek(self.pair.now_ms)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_batch_behind_a_refused_one_is_out_of_order_until_that_one_comes_again(version: int) -> None:
    who = Producer()
    assert who.codes(version, (0, batch(0, size=5000))) == [0]
    assert who.codes(version, (0, batch(1))) == [QUOTA_EXCEEDED]
    who.pair.advance(10_000)
    before, charges = who.measured, len(who.charges)
    assert who.codes(version, (0, batch(2))) == [OUT_OF_ORDER], "there is room again, but not for this one"
    assert who.measured == before, "what is refused counts for nothing"
    assert len(who.charges) == charges
    assert who.codes(version, (0, batch(7)), (1, batch(0))) == [OUT_OF_ORDER, 0], "other partitions pass"
    assert who.codes(version, (0, batch(3, producer_id=8))) == [0], "and other producers"
    assert who.codes(version, (0, batch(1))) == [0]
    assert who.codes(version, (0, batch(2))) == [0]
    assert who.codes(version, (0, batch(7))) == [0]
    assert who.taken() == [0, 3, 1, 2, 7]
    assert not who.pair.broker.sequences.holds_any(who.pair.now_ms)


def test_a_request_that_is_out_of_order_as_a_whole_has_no_throttle_time() -> None:
    who = Producer(OnViolation.DELAY_THEN_ERROR, max_throttle_ms=200)
    assert who.codes(8, (0, batch(0, size=5000))) == [0]
    who.pair.advance(200)
    assert who.codes(8, (0, batch(1))) == [QUOTA_EXCEEDED]
    who.pair.advance(10_000)
    assert who.codes(8, (0, batch(2, size=9000))) == [OUT_OF_ORDER]
    assert who.pair.session.state.mute is None, "the bytes that would have taken it over its quota don't count"
    assert who.codes(8, (0, batch(1, size=9000))) == [0]
    assert who.pair.session.state.mute is not None, "those of a request that passes do"


steps = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, IN_FLIGHT - 1), st.integers(70, 3000)), max_size=40)


@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_a_broker_gets_every_batch_once_and_in_order_whatever_is_tried_again_when(
    steps: list[tuple[int, int, int]],
) -> None:
    who, pending, unsent = Producer(), list[int](), 0
    for pause_ms, which, size in steps:
        who.pair.advance(pause_ms)
        if which >= len(pending):
            pending.append(unsent)
            unsent += 1
        sequence = pending[min(which, len(pending) - 1)]
        (code,) = who.codes(9, (0, batch(sequence, size=size)))
        if code == 0:
            pending.remove(sequence)
    assert who.taken() == list(range(len(who.taken())))


def test_order_is_kept_around_the_end_of_the_sequence_numbers() -> None:
    order = ProducerSequences()
    partition = ("t", 0)
    order.refused(APP, partition, Sequenced(1, 0, 2**31 - 5), START_MS)
    assert order.follows_refused(APP, partition, Sequenced(1, 0, 3), START_MS)
    assert not order.follows_refused(APP, partition, Sequenced(1, 0, 2**31 - 5), START_MS)
    assert not order.follows_refused(APP, partition, Sequenced(1, 0, 2**31 - 9), START_MS)
    assert not order.follows_refused(APP, partition, Sequenced(1, 1, 3), START_MS)


def test_what_is_remembered_of_producers_is_bounded() -> None:
    order = ProducerSequences()
    for producer_id in range(MAX_HELD + 1):
        order.refused(APP, ("t", 0), Sequenced(producer_id, 0, 1), START_MS)
    assert order._held <= MAX_HELD
    assert not order.follows_refused(APP, ("t", 0), Sequenced(9, 0, 2), START_MS), "the first were forgotten"
    for producer_id in (MAX_HELD // 2, MAX_HELD):
        assert order.follows_refused(APP, ("t", 0), Sequenced(producer_id, 0, 2), START_MS)


def test_what_one_user_sends_makes_nobody_elses_forgotten() -> None:
    order = ProducerSequences()
    order.refused(APP, ("t", 0), Sequenced(1, 0, 1), START_MS)
    for producer_id in range(3 * MAX_HELD):
        order.refused(("mallory", f"app-{producer_id}"), ("t", 0), Sequenced(producer_id, 0, 1), START_MS)
    assert order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 2), START_MS)
    assert order._held <= MAX_HELD
    assert order._held == sum(map(len, order._missing.values()))
    assert not order.holds_any(START_MS + HELD_MS)
    assert order._held == 0


def test_a_batch_in_anothers_name_holds_nobody_up() -> None:
    order = ProducerSequences()
    order.refused(MALLORY, ("t", 0), Sequenced(1, 0, 0), START_MS)
    assert not order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 5), START_MS)
    assert not order.follows_refused(("mallory", "other"), ("t", 0), Sequenced(1, 0, 5), START_MS)
    order.refused(APP, ("t", 0), Sequenced(1, 0, 5), START_MS)
    order.admitted(MALLORY, ("t", 0), Sequenced(1, 0, 5))
    assert order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 6), START_MS), "nor lets anything pass"


def test_every_refused_batch_has_to_come_again_before_those_behind_it() -> None:
    order = ProducerSequences()
    for first in (5, 6, 7, 5):
        order.refused(APP, ("t", 0), Sequenced(1, 0, first), START_MS)
    for first in (5, 6, 7):
        assert order.follows_refused(APP, ("t", 0), Sequenced(1, 0, first + 1), START_MS)
        assert not order.follows_refused(APP, ("t", 0), Sequenced(1, 0, first), START_MS)
        order.admitted(APP, ("t", 0), Sequenced(1, 0, first))
    assert not order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 8), START_MS)
    assert not order.holds_any(START_MS)


def test_of_more_batches_than_a_producer_has_under_way_the_earliest_are_remembered() -> None:
    order = ProducerSequences()
    firsts = [(2**31 - 10 + step) % 2**31 for step in range(2 * MAX_BATCHES)]
    for first in firsts:
        order.refused(APP, ("t", 0), Sequenced(1, 0, first), START_MS)
    for first in firsts[:MAX_BATCHES]:
        order.admitted(APP, ("t", 0), Sequenced(1, 0, first))
    assert not order.holds_any(START_MS)


def test_a_batch_that_never_comes_again_is_waited_for_no_longer_than_producers_try() -> None:
    order = ProducerSequences()
    order.refused(APP, ("t", 0), Sequenced(1, 0, 5), START_MS)
    order.refused(APP, ("t", 0), Sequenced(1, 0, 6), START_MS + HELD_MS - 1)
    assert order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 6), START_MS + HELD_MS - 1)
    assert not order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 6), START_MS + HELD_MS)
    assert order.follows_refused(APP, ("t", 0), Sequenced(1, 0, 7), START_MS + HELD_MS), "6 was refused since"
    assert order.holds_any(START_MS + 2 * HELD_MS - 2)
    assert not order.holds_any(START_MS + 2 * HELD_MS - 1)

"""Lost and duplicated records, told by the stamps in them."""

import pytest

from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.delivery import STAMP_SIZE, Delivery, StampCounter, Unwatched, stamp

RUN = 2**63 + 5


def _counted(*sequences: int, sent: int = 10, run_id: int = RUN, entity: int = 0) -> StampCounter:
    counter = StampCounter(run_id=RUN, sent={0: sent, 1: 3})
    for sequence in sequences:
        counter.count(stamp(run_id, entity, sequence) + b"filler")
    return counter


def test_all_there_once_is_met() -> None:
    delivery = _counted(*range(10)).delivery(0, acked=10)

    assert (delivery.found, delivery.lost, delivery.duplicated, delivery.state) == (10, 0, 0, State.MET)
    assert STAMP_SIZE == len(stamp(RUN, 0, 0)) == 20


def test_a_record_that_was_acknowledged_and_is_not_there_is_lost() -> None:
    delivery = _counted(*range(9)).delivery(0, acked=10)

    assert (delivery.lost, delivery.missing, delivery.state) == (1, 1, State.NOT_MET)
    assert "1 lost" in delivery.evidence


def test_a_record_that_was_never_answered_may_be_missing() -> None:
    counter = _counted(*range(8))

    assert counter.delivery(0, acked=8).lost == 0
    assert counter.delivery(0, acked=9).lost == 1


def test_a_record_that_comes_again_is_a_duplicate() -> None:
    delivery = _counted(*range(10), 3, 3).delivery(0, acked=10)

    assert (delivery.found, delivery.duplicated, delivery.state) == (10, 2, State.NOT_MET)


@pytest.mark.parametrize("other", [_counted(0, run_id=RUN + 1), _counted(10), _counted(0, entity=9)])
def test_records_of_others_are_passed_over(other: StampCounter) -> None:
    assert other.delivery(0, acked=0) == Delivery(missing=10)
    assert other.is_unstamped(0)


def test_records_too_short_for_a_stamp_are_passed_over() -> None:
    counter = StampCounter(run_id=RUN, sent={0: 1})
    for value in (None, b"", stamp(RUN, 0, 0)[:-1]):
        counter.count(value)

    assert counter.delivery(0, acked=1).found == 0


def test_clients_are_told_apart() -> None:
    counter = _counted(0, 1, 2, entity=1)

    assert (counter.delivery(0, acked=10).lost, counter.delivery(1, acked=3).found) == (10, 3)


def test_what_was_not_read_in_full_proves_no_loss_but_a_duplicate() -> None:
    partly = _counted(1, 2).delivery(0, acked=10, unchecked="no longer kept")
    doubled = _counted(1, 1).delivery(0, acked=10, unchecked="no longer kept")

    assert (partly.lost, partly.state) == (0, State.UNCHECKED)
    assert "not all could be checked: no longer kept" in partly.evidence
    assert doubled.state is State.NOT_MET
    assert Delivery(unchecked="too short").evidence == "too short"


def test_a_record_that_may_have_been_refused_unseen_is_not_called_lost() -> None:
    unwatched = Unwatched()
    for sequence in (0, 5, 9):
        unwatched.confirm(sequence)
    unwatched.count = 4
    told = _counted(0, 4, 5, 6, 7, 8, 9).delivery(0, acked=10, unwatched=unwatched)
    assert (told.lost, told.missing, told.state) == (0, 3, State.UNCHECKED)
    assert "3 more are missing, and were refused or lost" in told.evidence
    unwatched.confirm(2)
    told = _counted(0, 4, 5, 6, 7, 8, 9).delivery(0, acked=10, unwatched=unwatched)
    assert (told.lost, told.state) == (1, State.NOT_MET)
    assert _counted(*range(9)).delivery(0, acked=10, unwatched=Unwatched()).lost == 1  # no failure was ever seen


def test_certain_acknowledgements_of_any_number_are_remembered() -> None:
    unwatched = Unwatched()
    for sequence in (0, 100_000, 7):
        unwatched.confirm(sequence)
    assert unwatched.confirmed_outside(b"\x01") == 2
    assert unwatched.confirmed_outside(b"\xff" * 20_000) == 0


@pytest.mark.parametrize(("is_in_order", "lost"), [(True, 1), (False, 0)])
def test_a_record_that_is_missing_before_the_last_ones_is_lost_though_others_had_no_answer(
    is_in_order: bool, lost: int
) -> None:
    counter = StampCounter(run_id=7, sent={0: 100})
    for sequence in range(90):  # of the last ten none has an answer, and none is there
        if sequence != 41:
            counter.count(stamp(7, 0, sequence), sequence % 2)

    delivery = counter.delivery(0, acked=90, is_in_order=is_in_order)

    assert (delivery.found, delivery.missing, delivery.lost) == (89, 11, 1)
    unanswered = counter.delivery(0, acked=85, is_in_order=is_in_order)
    assert unanswered.lost == lost

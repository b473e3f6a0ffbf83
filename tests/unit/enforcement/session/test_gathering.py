"""The budget of gathered bytes: who gathers, who waits, and in which order they go on."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.enforcement.session.frames import GATHER_MS, SMALL_BYTES, GatherBudget, GatherShare

MB = 1_000_000


def test_who_finds_no_room_gets_it_in_turn() -> None:
    budget = GatherBudget(10 * MB)
    first, second, third, fourth = (budget.share() for _ in range(4))
    told: list[str] = []
    for name, share in (("third", third), ("fourth", fourth)):
        share.on_room = lambda name=name: told.append(name)
    assert first.take(6 * MB, 0)
    assert second.take(4 * MB, 0)
    assert not third.take(8 * MB, 0)
    assert not fourth.take(MB, 0), "it comes behind the one that waits already"
    second.end(1)
    assert told == []
    first.end(2)
    assert told == ["third", "fourth"]
    assert third.take(8 * MB, 3)
    assert fourth.take(MB, 3), "to ask again is no second request"
    assert budget.used_bytes == 9 * MB
    third.end(4)
    fourth.end(4)
    assert budget.used_bytes == 0


def test_small_frames_never_wait_and_one_beyond_the_budget_has_its_turn() -> None:
    budget = GatherBudget(MB)
    huge, small, next_one = (budget.share() for _ in range(3))
    assert huge.take(100 * MB, 0)
    assert not next_one.take(SMALL_BYTES + 1, 0)
    assert small.take(SMALL_BYTES, 0)
    small.end(0)
    huge.end(0)
    assert next_one.take(SMALL_BYTES + 1, 0)


def test_who_announces_much_and_sends_little_is_overdue_as_soon_as_somebody_waits() -> None:
    budget = GatherBudget(MB)
    slow, waiting = budget.share(), budget.share()
    assert slow.take(MB, 0)
    assert budget.overdue(GATHER_MS) == [], "nobody wants the room"
    assert not waiting.take(MB, GATHER_MS)
    assert budget.overdue(GATHER_MS - 1) == []
    assert budget.overdue(GATHER_MS) == [slow]
    slow.end(GATHER_MS)
    assert waiting.take(MB, GATHER_MS)
    assert budget.overdue(2 * GATHER_MS - 1) == []


def test_who_leaves_while_it_waits_is_out_of_the_line() -> None:
    budget = GatherBudget(MB)
    first, gone, last = (budget.share() for _ in range(3))
    assert first.take(MB, 0)
    assert not gone.take(MB, 0)
    assert not last.take(MB, 0)
    gone.end(0)
    first.end(0)
    assert last.take(MB, 0)
    assert budget.used_bytes == MB


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(SMALL_BYTES + 1, 2 * MB), st.booleans()), max_size=60))
def test_no_more_is_used_than_there_is_and_nobody_waits_where_there_is_room(steps: list[tuple[int, int, bool]]) -> None:
    budget = GatherBudget(3 * MB)
    shares: list[GatherShare] = [budget.share() for _ in range(6)]
    wanted: dict[int, int] = {}
    for number, length, ends in steps:
        if ends:
            shares[number].end(0)
            wanted.pop(number, None)
        elif number not in wanted:
            wanted[number] = length
            shares[number].take(length, 0)
        gathering = [each for each in wanted if not shares[each].is_waiting]
        assert budget.used_bytes == sum(wanted[each] for each in gathering)
        assert budget.used_bytes <= 3 * MB
        assert gathering or not wanted

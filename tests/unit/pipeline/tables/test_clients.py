"""Numbers of clients, by which tables are sorted and tasks are divided."""

from kafka_quotas.pipeline.tables.packed_events import BROKER_SHIFT, USER_SHIFT, client_number, shared_shift


def number(user: str, client_id: str, *, broker_id: int = 1) -> int:
    return client_number(cluster="default", broker_id=broker_id, user=user, client_id=client_id)


def test_numbers_never_change_for_tables_were_sorted_by_them() -> None:
    found = [number(user, client) for user, client in (("alice", "app"), ("", ""), ("\u00e4", "x"))]
    assert found == [4686680504342131650, 4688007668765136055, 4688110087135264679]


def test_many_clients_of_one_user_have_a_number_each() -> None:
    names = [f"client-{each}" for each in range(20_000)]
    assert len({number("ANONYMOUS", name) for name in names}) == len(names)


def test_a_client_has_another_number_at_a_broker_whose_part_of_it_is_the_same() -> None:
    one, other = (number("alice", "app", broker_id=broker_id) for broker_id in (49, 143))
    assert one >> BROKER_SHIFT == other >> BROKER_SHIFT
    assert one != other


def test_where_a_name_ends_counts() -> None:
    assert number("a\0b", "c") & (1 << USER_SHIFT) - 1 != number("a", "b\0c") & (1 << USER_SHIFT) - 1
    assert number("ab", "c") & (1 << USER_SHIFT) - 1 != number("a", "bc") & (1 << USER_SHIFT) - 1


def test_clients_that_share_a_user_or_a_broker_are_neighbours() -> None:
    assert number("alice", "a") >> USER_SHIFT == number("alice", "b") >> USER_SHIFT
    assert number("alice", "a") >> USER_SHIFT != number("bob", "a") >> USER_SHIFT
    assert number("alice", "a") >> BROKER_SHIFT == number("bob", "b") >> BROKER_SHIFT
    assert number("alice", "a") >> BROKER_SHIFT != number("alice", "a", broker_id=2) >> BROKER_SHIFT


def test_a_range_is_as_wide_as_what_shares_a_quota() -> None:
    everything = ("cluster", "broker_id", "user", "client_id")
    assert [shared_shift(everything[:count]) for count in (4, 3, 2)] == [0, USER_SHIFT, BROKER_SHIFT]
    assert shared_shift(("cluster", "broker_id", "client_id")) == BROKER_SHIFT

"""Numbers of clients, by which tables are sorted and tasks are divided."""

from kafka_quotas.pipeline.tables.client_number import BROKER_SHIFT, USER_SHIFT, client_number, shared_shift


def number(user: str, client_id: str, *, broker_id: int = 1) -> int:
    return client_number(cluster="default", broker_id=broker_id, user=user, client_id=client_id)


def test_numbers_never_change_for_tables_were_sorted_by_them() -> None:
    found = [number(user, client) for user, client in (("alice", "app"), ("", ""), ("\u00e4", "x"))]
    assert found == [4686680783350260606, 4688006646739409537, 4688109145489636621]


def test_clients_that_share_a_user_or_a_broker_are_neighbours() -> None:
    assert number("alice", "a") >> USER_SHIFT == number("alice", "b") >> USER_SHIFT
    assert number("alice", "a") >> USER_SHIFT != number("bob", "a") >> USER_SHIFT
    assert number("alice", "a") >> BROKER_SHIFT == number("bob", "b") >> BROKER_SHIFT
    assert number("alice", "a") >> BROKER_SHIFT != number("alice", "a", broker_id=2) >> BROKER_SHIFT


def test_a_range_is_as_wide_as_what_shares_a_quota() -> None:
    everything = ("cluster", "broker_id", "user", "client_id")
    assert [shared_shift(everything[:count]) for count in (4, 3, 2)] == [0, USER_SHIFT, BROKER_SHIFT]
    assert shared_shift(("cluster", "broker_id", "client_id")) == BROKER_SHIFT

"""The way from groups in force to declared ones: the new list, what it changes, and whom it concerns."""

from ipaddress import ip_network

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups import group_changes as module
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.core.groups.group_changes import (
    MOST_COMBINATIONS,
    GroupChange,
    LimitOfGroups,
    group_changes,
    groups_from,
    groups_text,
    merged_groups,
    moved_clients,
)
from kafka_quotas.core.model.entity import Entity

RATE = "producer_byte_rate"


def group(name: str, rate: float | None = None, **members: str) -> Group:
    found = (GroupMember(**members),) if members else ()  # type: ignore[arg-type]
    return Group(name=name, members=found, producer_byte_rate=rate)


def merged(stored: str, declared: str, *, prune: str = "") -> str:
    after = merged_groups(
        [group(name) for name in stored], [group(name) for name in declared], prune=lambda each: each.name in prune
    )
    return "".join(each.name for each in after)


@pytest.mark.parametrize(
    ("stored", "declared", "prune", "after"),
    [
        ("", "ab", "", "ab"),
        ("abc", "b", "", "abc"),
        ("abc", "b", "ac", "b"),
        ("abc", "ca", "", "cba"),
        ("axb", "acb", "", "acxb"),
        ("xab", "dab", "", "xdab"),
        ("xab", "b", "x", "ab"),
    ],
)
def test_what_stays_keeps_its_place_and_new_groups_follow_the_one_declared_before(
    stored: str, declared: str, prune: str, after: str
) -> None:
    assert merged(stored, declared, prune=prune) == after
    assert merged(after, declared, prune=prune) == after, "and a second time nothing moves"


def test_changes_name_each_limit_guarantee_and_member_with_its_old_and_new_value() -> None:
    old = Group(
        name="a",
        producer_byte_rate=1.0,
        consumer_byte_rate=7.0,
        guaranteed=GroupRates(request_percentage=5.0),
        members=(GroupMember(user="x"), GroupMember(user="y")),
    )
    new = Group(
        name="a", producer_byte_rate=2.0, members=(GroupMember(user="y"), GroupMember(address=ip_network("10.0.0.0/8")))
    )
    assert [(each.key, each.old, each.new) for each in group_changes([old, group("b")], [group("c", 3.0), new])] == [
        ("group", None, "c"),
        (RATE, None, 3.0),
        (RATE, 1.0, 2.0),
        ("consumer_byte_rate", 7.0, None),
        ("guaranteed.request_percentage", 5.0, None),
        ("member", "user x", None),
        ("member", None, "address 10.0.0.0/8"),
        ("group", "b", None),
    ]
    assert group_changes([old], [old]) == ()


def test_another_order_is_a_change_as_the_first_group_that_fits_counts() -> None:
    before = [group("a", user="x"), group("b", user="x")]
    assert group_changes(before, before[::-1]) == (GroupChange(group="b", key="order", old=2.0, new=1.0),)
    (moved,) = (each for each in moved_clients(before, before[::-1], ()).clients if each.client == {"user": "x"})
    assert (moved.before, moved.after) == ("a", "b")


def test_clients_of_members_and_of_stored_entities_are_found_by_name() -> None:
    before = [group("a", 10.0, user="alice")]
    after = [group("a", 10.0, user="bob"), group("web", client_id_prefix="web-")]
    stored = [Entity.of(user="alice", client_id="web-1"), Entity.of(user="carol"), Entity.of(ip=None)]
    found = moved_clients(before, after, stored).clients
    limits = (LimitOfGroups(RATE, 10.0, None),)
    assert [(dict(each.client), each.before, each.after, each.limits) for each in found] == [
        ({"user": "alice"}, "a", None, limits),
        ({"user": "alice", "client-id": "web-*"}, "a", "web", limits),
        ({"user": "alice", "client-id": "web-1"}, "a", "web", limits),
        ({"user": "bob"}, None, "a", (LimitOfGroups(RATE, None, 10.0),)),
        ({"client-id": "web-*"}, None, "web", ()),
        ({"client-id": "web-1"}, None, "web", ()),
    ]


def test_a_limit_around_a_group_concerns_its_clients_if_it_is_the_least() -> None:
    inner = group("a/b", 10.0, user="alice")
    assert moved_clients([group("a", 50.0), inner], [group("a", 40.0), inner], ()).clients == ()
    (found,) = moved_clients([group("a", 50.0), inner], [group("a", 5.0), inner], ()).clients
    assert (dict(found.client), found.limits) == ({"user": "alice"}, (LimitOfGroups(RATE, 10.0, 5.0),))


def test_too_many_combinations_are_counted_and_left_out() -> None:
    many = [group(f"u{number}", user=f"u{number}") for number in range(101)]
    stored = [Entity.of(client_id=f"c{number}") for number in range(100)]
    found = moved_clients([], many, stored)
    assert found.left_out == 10_100 > MOST_COMBINATIONS
    assert len(found.clients) == 101


def test_a_kept_list_reads_back_and_a_damaged_one_is_refused() -> None:
    groups = Group(name="a", request_percentage=0.1), group('a/é "', client_id_pattern="*x?")
    assert groups_from(groups_text(groups), "x") == groups
    for text in ("[", "{}", '[{"name": "a/b"}]', '[{"name": "a", "rate": 1}]'):
        with pytest.raises(UsageError):
            groups_from(text, "x")


def test_of_more_names_than_can_be_compared_those_of_changed_groups_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_COMPARISONS", 6)
    same = [group("a", user_prefix="a"), group("b", user="b")]
    found = moved_clients([*same, group("z", 5.0, user="z")], [*same, group("z", 6.0, user="z")], ())
    assert [dict(each.client) for each in found.clients] == [{"user": "z"}]
    assert found.left_out == 0
    monkeypatch.setattr(module, "MOST_COMPARISONS", 2)
    found = moved_clients([*same, group("z", 5.0, user="z")], [*same, group("z", 6.0, user="z")], ())
    assert [dict(each.client) for each in found.clients] == [{"user": "z"}]
    assert found.left_out == 2

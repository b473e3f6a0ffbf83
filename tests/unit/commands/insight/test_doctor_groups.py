"""What is odd about groups: conflicts, nobody in them, members out of reach or of nobody, limits that never hold."""

from ipaddress import ip_network
from time import process_time
from typing import Any

import pytest

from kafka_quotas.commands.insight.doctor import clients_in, odd_groups
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.quota_resolver import GROUP_USER
from kafka_quotas.core.resolution.usage import Usage

EVERYBODY = (Entity.of(user="alice", client_id="app"), Entity.of(user=None))


def checks(*groups: Group, clients: tuple[Entity, ...] = EVERYBODY) -> list[tuple[str, str]]:
    return [(each.check, each.about) for each in odd_groups(groups, clients, evidence="the store")]


def group(name: str, *members: dict[str, Any], **rates: Any) -> Group:
    return Group(name=name, members=tuple(GroupMember(**each) for each in members), **rates)


def test_groups_that_do_not_fit_together_are_errors_and_all_of_them_are_reported() -> None:
    limited = group("a", producer_byte_rate=10.0)
    inner = [group(f"a/{name}", guaranteed=GroupRates(producer_byte_rate=6.0)) for name in "bc"]
    found = list(odd_groups((limited, *inner, group("x/y")), (), evidence="the store"))
    assert [(each.check, each.about, each.severity.value) for each in found] == [
        ("group-conflict", "group a", "error"),
        ("group-conflict", "group x/y", "error"),
    ]
    assert "guaranteed producer_byte_rate 12 of 10" in found[0].sentence
    assert found[1].remedy == 'add a [[group]] with name = "x"'


def test_a_group_in_which_nobody_can_be_is_found_and_one_around_others_is_none() -> None:
    outer, inner = group("a", producer_byte_rate=10.0), group("a/b", {"user": "alice"})
    assert checks(outer, inner) == []
    assert checks(outer) == [("group-empty", "group a")]


@pytest.mark.parametrize(
    ("earlier", "later", "is_taken"),
    [
        ({"user": "alice"}, {"user": "alice"}, True),
        ({"user": "alice"}, {"user": "alice", "client_id": "app"}, True),
        ({"user": "alice", "client_id": "app"}, {"user": "alice"}, False),
        ({"client_id_prefix": "app"}, {"client_id_prefix": "app-"}, True),
        ({"client_id_prefix": "app-"}, {"client_id_prefix": "app"}, False),
        ({"client_id_prefix": "app"}, {"client_id": "app"}, True),
        ({"client_id_prefix": "app"}, {"client_id_pattern": "app-*-x"}, True),
        ({"client_id_prefix": "app"}, {"client_id_pattern": "a*"}, False),
        ({"client_id_pattern": "app*"}, {"client_id_prefix": "app-"}, True),
        ({"client_id_pattern": "*"}, {"client_id_pattern": "?x"}, True),
        ({"client_id_pattern": "*"}, {"user": "alice"}, False),
        ({"client_id_pattern": "a?p*"}, {"client_id": "app-1"}, True),
        ({"client_id_pattern": "a?p*"}, {"client_id_prefix": "axp"}, False),
        ({"listener": "vpn"}, {"listener": "vpn", "user": "alice"}, True),
        ({"listener": "vpn"}, {"user": "alice"}, False),
        ({"address": ip_network("10.0.0.0/8")}, {"address": ip_network("10.1.0.0/16")}, True),
        ({"address": ip_network("10.1.0.0/16")}, {"address": ip_network("10.0.0.0/8")}, False),
        ({"address": ip_network("::/0")}, {"address": ip_network("10.1.0.0/16")}, False),
    ],
)
def test_a_member_whose_clients_an_earlier_one_takes_is_found(
    earlier: dict[str, Any], later: dict[str, Any], *, is_taken: bool
) -> None:
    found = [each for each in checks(group("first", earlier), group("second", later)) if each[0] != "member-unseen"]
    assert found == ([("member-unreachable", "group second")] if is_taken else [])


def test_inner_groups_come_first_whatever_the_order_in_the_file() -> None:
    outer = group("a", {"user": "alice"})
    assert checks(outer, group("a/b", {"user": "alice"})) == [("member-unreachable", "group a")]


def test_members_of_nobody_are_found_by_whole_names_and_never_of_connections() -> None:
    seen = (
        {"user_pattern": "*c*", "client_id_prefix": "app"},
        {"user": "alice", "client_id_pattern": "?pp"},
        {"client_id_prefix": "ap"},
    )
    members = (*seen, {"user": "bob"}, {"user": "alice", "client_id": "other"}, {"listener": "x"})
    found = list(odd_groups([group("a", *members)], EVERYBODY, evidence="the store"))
    assert [each.sentence for each in found] == [
        "its member user bob fits nobody in the store",
        "its member user alice, client_id other fits nobody in the store",
    ]
    assert {each.severity.value for each in found} == {"note"}


def test_a_thousand_members_and_ten_thousand_clients_are_examined_at_once() -> None:
    members = [{"client_id_prefix": f"app{number}-"} for number in range(1000)]
    clients = [Entity.of(user=f"u{number}", client_id=f"app{number}-x") for number in range(9_999)]
    groups = [group(f"g{number}", each) for number, each in enumerate([*members, {"client_id": "app7-x"}])]
    started = process_time()
    found = [(each.check, each.about) for each in odd_groups(groups, clients, evidence="the store")]
    assert found == [("member-unreachable", "group g1000")]
    assert process_time() - started < 5.0, "it took 60 s when each member was compared with each client"


def test_clients_of_figures_are_evidence_and_buckets_of_groups_are_none() -> None:
    figures = {"broker": "1", "key": "producer_byte_rate", "observed": 1.0}
    names = (("bob", ""), ("", "app"), ("bob", ""), (GROUP_USER, "a"))
    usages = [Usage(user=user, client_id=client_id, **figures) for user, client_id in names]
    assert list(clients_in(usages)) == [Entity.of(user="bob"), Entity.of(client_id="app")]


def test_a_limit_that_those_within_never_reach_together_is_a_note() -> None:
    inner = [group(f"a/{name}", {"user": "alice"} if name == "b" else {"client_id": "app"}) for name in "bc"]
    limited = [Group(name=each.name, members=each.members, producer_byte_rate=4.0) for each in inner]
    (found,) = odd_groups([group("a", producer_byte_rate=10.0), *limited], EVERYBODY, evidence="the store")
    assert (found.check, found.about, found.key) == ("group-limit-idle", "group a", "producer_byte_rate")
    assert "10 B/s never holds: the groups within it are limited to 8 B/s together" in found.sentence
    assert checks(group("a", producer_byte_rate=8.0), *limited) == []
    assert checks(group("a", producer_byte_rate=10.0), limited[0], inner[1]) == []

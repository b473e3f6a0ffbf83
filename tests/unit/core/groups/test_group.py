"""Groups of clients: what a file may say of them, and what keeps them from fitting together."""

from typing import Any

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import DocumentError, toml_node
from kafka_quotas.core.formats.typed_document import read_record
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree, group_problems

TEXT = """
name = "payments/checkout"
members = [{ user = "checkout" }, { client_id_prefix = "checkout-", address = "10.1.0.0/16" }]
producer_byte_rate = "20MiB"
request_percentage = 50
guaranteed = { producer_byte_rate = "8MiB" }
"""


def read(text: str) -> Group:
    return read_record(Group, toml_node(text, "policy.toml"))


def rates(**by_key: float) -> GroupRates:
    return GroupRates(**by_key)


def group(name: str, guaranteed: float | None = None, limit: float | None = None, **more: Any) -> Group:
    return Group(name=name, producer_byte_rate=limit, guaranteed=GroupRates(producer_byte_rate=guaranteed), **more)


def test_a_group_is_read_with_the_units_of_its_keys() -> None:
    found = read(TEXT)

    assert found.by_key == {"producer_byte_rate": 20 * 1024**2, "request_percentage": 50.0}
    assert found.guaranteed.by_key == {"producer_byte_rate": 8 * 1024**2}
    assert found.parent == "payments"
    assert [str(member) for member in found.members] == [
        "user checkout",
        "client_id_prefix checkout-, address 10.1.0.0/16",
    ]
    assert str(found.entity) == "group payments/checkout"


def test_a_range_of_ipv4_addresses_in_ipv6_form_is_read_as_what_connections_count_for() -> None:
    (member,) = read('name = "a"\nmembers = [{ address = "::ffff:10.1.0.0/112" }]').members

    assert str(member) == "address 10.1.0.0/16"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = ""', "not the name of a group"),
        ('name = "a//b"', "not the name of a group"),
        ('name = "a\\tb"', "not the name of a group"),
        (f'name = "{"x" * 256}"', "not the name of a group"),
        (f'name = "{"/".join("abcdefghi")}"', "lies within 8 groups, and 7 are the most"),
        ('name = "a"\nmembers = [{}]', "it names nobody"),
        ('name = "a"\nmembers = [{ user = "x", user_prefix = "y" }]', "user and user_prefix exclude each other"),
        ('name = "a"\nmembers = [{ client_id = "" }]', "it is empty"),
        ('name = "a"\nmembers = [{ address = "10.1.0.1/16" }]', "not a range of addresses"),
        ('name = "a"\nmembers = [{ users = "x" }]', "unknown name 'users'"),
        ('name = "a"\nproducer_byte_rate = 0', "producer_byte_rate"),
        ('name = "a"\nproducer_byte_rate = "10 apples"', "not a size"),
        ('name = "a"\nproducer_byte_rate = true', "True is not a whole number"),
        ('name = "a"\nconnection_creation_rate = 1.5', "connection_creation_rate"),
        ('name = "a"\nguaranteed = { producer_byte_rate = -1 }', "producer_byte_rate"),
        ('name = "a"\nrequest_rate = 5', "unknown name 'request_rate'"),
    ],
)
def test_what_is_no_group_is_refused(text: str, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        read(text)


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([group("a"), group("a")], "a: it is declared twice"),
        ([group("a/b")], "a/b: there is no group a around it"),
        (
            [group("a", limit=9), group("a/b", 5, limit=4)],
            "a/b: guaranteed producer_byte_rate 5 is more than its limit 4",
        ),
        ([group("a"), group("a/b", 5)], "a/b: no group around it has a limit of producer_byte_rate"),
        ([group("a", 5)], "a: no group around it has a limit"),
        (
            [group("a", limit=9), group("a/b", 5), group("a/c", 5)],
            "a: the groups within it are guaranteed producer_byte_rate 10 of 9",
        ),
        (
            [group("a", limit=9), group("a/b"), group("a/b/c", 6), group("a/b/d", 4)],
            "a: the groups within it are guaranteed producer_byte_rate 10 of 9",
        ),
        (
            [group("a", connection_creation_rate=5.0), group("a/b", members=(GroupMember(user="x"),))],
            "a: connection_creation_rate takes members by listener and address alone, not user x",
        ),
    ],
)
def test_groups_that_do_not_fit_together_are_refused(groups: list[Group], problem: str) -> None:
    with pytest.raises(UsageError, match=f"group {problem}"):
        GroupTree(groups)
    assert f"{next(group_problems(groups)).group}: {next(group_problems(groups)).message}".startswith(problem)


def test_guarantees_may_take_up_a_whole_limit_and_overlap_with_those_within_them() -> None:
    groups = [
        group("a", limit=10),
        group("a/b", 6),
        group("a/b/c", 4),
        group("a/d", 4),
        Group(name="conn", connection_creation_rate=5, members=(GroupMember(listener="EXTERNAL"),)),
    ]

    assert list(group_problems(groups)) == []


def test_guarantees_that_add_up_to_a_limit_but_for_rounding_fit() -> None:
    within = [
        Group(name=f"a/{rate}", guaranteed=GroupRates(controller_mutation_rate=rate), members=()) for rate in (0.1, 0.2)
    ]

    assert list(group_problems([Group(name="a", controller_mutation_rate=0.3), *within])) == []


def test_a_tree_knows_what_lies_within_and_around_a_group() -> None:
    tree = GroupTree([group("b", limit=3), group("a"), group("a/x"), group("b/y", 1), group("a/x/z")])

    assert [each.name for each in tree.chain("a/x/z")] == ["a/x/z", "a/x", "a"]
    assert tree.chain(None) == ()
    assert [each.name for each in tree.walk()] == ["b/y", "b", "a/x/z", "a/x", "a"]
    assert [each.name for each in tree.within("a")] == ["a/x"]
    assert [rate for each in tree.groups for rate in each.rates()] == [
        ("b", "producer_byte_rate", 3, None),
        ("b/y", "producer_byte_rate", None, 1),
    ]
    assert not GroupTree()

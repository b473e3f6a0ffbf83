"""The group of a client, by its names and its connection."""

import re
from collections import Counter
from fnmatch import fnmatchcase
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree, Names
from kafka_quotas.core.groups.membership import LONGEST_CLIENT_ID, Membership, Peer


def membership(**members: GroupMember | tuple[GroupMember, ...]) -> Membership:
    """Return the groups of these names, with `__` for a slash, in this order."""
    return Membership(
        GroupTree(
            [
                Group(name=name.replace("__", "/"), members=each if isinstance(each, tuple) else (each,))
                for name, each in members.items()
            ]
        )
    )


@pytest.mark.parametrize(
    ("user", "client_id", "group"),
    [
        ("alice", "any", "exact"),
        ("bob", "any", None),
        ("bob", "one", "pair"),
        ("x", "one", None),
        ("x", "app-7", "prefix"),
        ("x", "app", None),
        ("team-a-svc", "x", "pattern"),
        ("team--svc", "x", "pattern"),
        ("team-svc", "x", None),
        ("x", "ab1", "letters"),
        ("x", "ab12", None),
        ("alice", "app-7", "exact"),
        ("", "", None),
    ],
)
def test_a_client_is_in_the_first_group_that_it_fits(user: str, client_id: str, group: str | None) -> None:
    found = membership(
        exact=GroupMember(user="alice"),
        pair=GroupMember(user="bob", client_id="one"),
        prefix=GroupMember(client_id_prefix="app-"),
        pattern=GroupMember(user_pattern="team-*-svc"),
        letters=GroupMember(client_id_pattern="ab?"),
    )

    assert found.group_of(user, client_id) == group


def test_groups_within_a_group_come_before_it_and_those_declared_first_before_others() -> None:
    found = membership(
        a=GroupMember(user_prefix="u"),
        a__one=GroupMember(client_id="1"),
        b=GroupMember(user="u1"),
        a__one__deep=GroupMember(user="u2", client_id="1"),
    )

    assert found.group_of("u1", "1") == "a/one"
    assert found.group_of("u2", "1") == "a/one/deep"
    assert found.group_of("u1", "2") == "a"  # declared before b, though b names the user itself
    assert found.group_of("v", "1") == "a/one"


def test_a_member_may_fit_the_user_and_the_client_id_by_different_ways() -> None:
    found = membership(
        a=GroupMember(user="a*b", client_id_prefix="x"),
        b=GroupMember(user_prefix="s.", client_id_pattern="*-[1]"),
    )

    assert found.group_of("a*b", "xy") == "a"
    assert found.group_of("aab", "xy") is None  # the user is a name, not a pattern
    assert found.group_of("s.1", "q-[1]") == "b"
    assert found.group_of("s.1", "q-1") is None
    assert found.group_of("sx1", "q-[1]") is None


def test_a_client_id_with_line_ends_and_nul_is_like_any_other() -> None:
    found = membership(a=GroupMember(client_id_pattern="a*z"), b=GroupMember(user="u", client_id_prefix="\n"))

    assert found.group_of("u", "a\n\0z") == "a"
    assert found.group_of("u", "\n\0") == "b"
    assert found.group_of("v", "\nu\0\n") is None


def test_of_a_long_client_id_prefixes_and_patterns_see_both_ends() -> None:
    name = "a" * LONGEST_CLIENT_ID + "b"
    found = membership(
        exact=GroupMember(user_prefix="team-", client_id=name),
        end=GroupMember(client_id_pattern="*-end"),
        letters=GroupMember(client_id_pattern="?" * LONGEST_CLIENT_ID + "-"),
        both=GroupMember(client_id_pattern="*aab"),
        prefix=GroupMember(client_id_prefix="a"),
        user=GroupMember(user_pattern="team-*"),
        all=GroupMember(client_id_pattern="*"),
    )

    assert found.group_of("team-1", name) == "exact"
    assert found.group_of("team-1", "a" + name) == "both"
    assert found.group_of("x", name) == "both"
    assert found.group_of("x", name + "a") == "prefix"
    assert found.group_of("team-1", "b" + name + "a") == "user"
    assert found.group_of("x", "b" * 32_000) == "all"
    assert found.group_of("x", "b" * 32_000 + "-end") == "end"


def test_patterns_and_addresses_are_read_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = [_of_address(f"10.{number}.0.0/16") for number in range(50)]
    found = membership(
        patterns=tuple(GroupMember(client_id_pattern=f"*-{number}-*") for number in range(600)),
        **{f"n{number}": each for number, each in enumerate(ranges)},
    )
    read = Counter[str]()
    monkeypatch.setattr(re, "compile", lambda *_: read.update(["pattern"]))
    monkeypatch.setattr(
        "kafka_quotas.core.groups.membership.canonical_address", lambda text: read.update(["address"]) or text
    )

    assert [found.group_of("u", "c", Peer("L", f"10.{number}.0.1")) for number in (0, 49)] == ["n0", "n49"]
    assert read == {"address": 2}


LETTERS = st.text(alphabet="ab-", max_size=8)
PATTERNS = st.text(alphabet="ab-*?", min_size=1, max_size=8)


@given(pattern=PATTERNS, name=LETTERS)
def test_a_pattern_fits_what_a_shell_would_find_by_it(pattern: str, name: str) -> None:
    expected = "a" if fnmatchcase(name, pattern) else None

    assert membership(a=GroupMember(client_id_pattern=pattern)).group_of("u", name) == expected
    assert membership(a=GroupMember(user_pattern=pattern)).group_of(name, "c") == expected


@given(members=st.lists(st.tuples(st.sampled_from(("", "_prefix", "_pattern")), PATTERNS), max_size=6), name=LETTERS)
def test_the_first_of_several_members_decides(members: list[tuple[str, str]], name: str) -> None:
    groups = [
        Group(name=f"g{number}", members=(GroupMember(**{f"client_id{way}": text}),))
        for number, (way, text) in enumerate(members)
    ]
    fits = {
        "": lambda text: name == text,
        "_prefix": name.startswith,
        "_pattern": lambda text: fnmatchcase(name, text),
    }
    expected = next((f"g{number}" for number, (way, text) in enumerate(members) if fits[way](text)), None)

    assert Membership(GroupTree(groups)).group_of("u", name) == expected


def test_members_by_listener_and_address_depend_on_the_connection() -> None:
    found = membership(
        office=_of_address("10.1.0.0/16"),
        external=(GroupMember(listener="EXTERNAL", user_prefix="p-"), GroupMember(listener="PUBLIC")),
        p=GroupMember(user="p-1"),
    )

    assert found.group_of("p-1", "c") == "p"
    assert found.group_of("p-1", "c", Peer("EXTERNAL", "192.0.2.1")) == "external"
    assert found.group_of("q-1", "c", Peer("EXTERNAL", "192.0.2.1")) is None
    assert found.group_of("q-1", "c", Peer("PUBLIC", "192.0.2.1")) == "external"
    assert found.group_of("p-1", "c", Peer("EXTERNAL", "10.1.2.3")) == "office"
    assert found.group_of("p-1", "c", Peer("EXTERNAL", "::ffff:10.1.2.3")) == "office"
    assert found.group_of("p-1", "c", Peer("EXTERNAL", "2001:db8::1")) == "external"
    assert found.group_of("p-1", "c", Peer("EXTERNAL", "no address")) == "external"
    assert found.origin(Peer("OTHER", "192.0.2.1")) == found.origin(Peer("ANOTHER", "192.0.2.2")) == ()


def test_a_connection_is_in_a_group_by_its_listener_and_address_alone_before_its_login() -> None:
    found = membership(
        p=GroupMember(listener="PUBLIC", user="p"),
        public=GroupMember(listener="PUBLIC"),
        all=_of_address("0.0.0.0/0"),
    )

    assert found.group_of_connection(Peer("PUBLIC", "192.0.2.1")) == "public"
    assert found.group_of_connection(Peer("OTHER", "192.0.2.1")) == "all"
    assert found.group_of_connection(Peer("OTHER", "2001:db8::1")) is None
    assert membership(p=GroupMember(user="p")).group_of_connection(Peer("PUBLIC", "192.0.2.1")) is None


def _of_address(text: str) -> GroupMember:
    return GroupMember(address=ip_network(text))


def test_a_pattern_is_compared_only_with_names_that_have_its_longest_text(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    class Counting:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self.pattern = pattern

        def match(self, text: str) -> re.Match[str] | None:
            compared.append(text)
            return self.pattern.match(text)

    compiled = Names.compiled
    monkeypatch.setattr(Names, "compiled", lambda names: Counting(compiled(names)))
    members = tuple(GroupMember(client_id_pattern=f"*-app{number}-*") for number in range(1000))
    found = membership(a=members)

    assert found.group_of("u", "x" * 100) is None
    assert found.group_of("u", "my-app7-3") == "a"
    assert compared == ["u", "my-app7-3"]

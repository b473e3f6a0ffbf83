"""What is written to a file of quotas, a store or a policy file reads back as exactly what it was."""

import math
import tempfile
from collections.abc import Sequence
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.stores.quota_files import read_back, same_content

from kafka_quotas.commands.declarative.reading import read_declarations
from kafka_quotas.core.formats.documents import load_toml
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.core.groups.group_changes import group_changes, groups_from, merged_groups
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.quota_files.writer import FileFormat, file_text, with_groups
from kafka_quotas.stores import open_store

# A name is whatever UTF-8 can hold; lone surrogates it can't, and no store can either.
ODD_NAMES = (
    "null",
    "~",
    "true",
    "no",
    "1",
    "1.0",
    "0x10",
    "2026-11-21",
    "<default>",
    "a: b",
    "- a",
    "#",
    "'",
    '"',
    "\\",
    "$web",
    "\n",
    "\r\n",
    "\t",
    "\x85",
    "\u2028",
    "\ufeff",
    "\x00",
    "\x7f",
    "é",
    "e\u0301",
    "\U0001f600",
    " ",
    "a ",
    "&a",
    "*a",
    "!!str a",
    "{}",
    "[]",
    "|",
    ">",
    "%",
    "@",
    "`",
    ",",
    "=",
    "<<",
)
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(ODD_NAMES)
ENTITIES = st.one_of(
    st.builds(lambda user: Entity.of(user=user), NAMES),
    st.builds(lambda client_id: Entity.of(client_id=client_id), NAMES),
    st.builds(lambda user, client_id: Entity.of(user=user, client_id=client_id), NAMES, NAMES),
    st.builds(lambda ip: Entity.of(ip=ip), NAMES),
)
VALUES = st.one_of(
    st.floats(),
    st.integers(1, 2**63).map(float),
    st.sampled_from(
        [0.0, -0.0, -1.0, 0.1, 5e-324, 1e300, 2.0**63, 2.0**31 - 1, 2.0**64, 1e-5, math.nan, math.inf, -math.inf]
    ),
)
QUOTAS = st.dictionaries(st.sampled_from([*QUOTA_KEYS, "future_rate"]), VALUES, min_size=1)


@pytest.mark.parametrize("form", FileFormat)
@given(content=st.dictionaries(ENTITIES, QUOTAS, max_size=4))
@settings(deadline=None, max_examples=60)
def test_a_file_reads_back_as_it_was(form: FileFormat, content: dict[Entity, dict[str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = read_back(content, form, Path(folder))
    assert same_content(content, found)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(ODD_NAMES)
RATES = st.integers(1, 2**63 - 1).map(float) | st.sampled_from([1.0, 2.0**63, 9007199254740993.0])
PARTS = {
    **dict.fromkeys(("user", "client_id"), TEXTS),
    **dict.fromkeys(("listener",), TEXTS),
    "address": st.sampled_from([ip_network("10.0.0.0/8"), ip_network("::1/128"), ip_network("fe80::/10")]),
}
WAYS = ("", "_prefix", "_pattern")


@st.composite
def members(draw: st.DrawFn) -> GroupMember:
    parts = draw(st.sets(st.sampled_from(sorted(PARTS)), min_size=1))
    given_parts = {
        f"{part}{draw(st.sampled_from(WAYS))}" if part in ("user", "client_id") else part: draw(PARTS[part])
        for part in sorted(parts)
    }
    return GroupMember(**given_parts)


@st.composite
def trees(draw: st.DrawFn) -> list[Group]:
    """Groups within each other that fit together, in any order."""
    tops = draw(st.lists(st.text('ab é"#.-', min_size=1, max_size=4), unique=True, max_size=3))
    groups = []
    for top in tops:
        limit, own = draw(RATES), tuple(draw(st.lists(members(), max_size=3)))
        fetch, percent = draw(st.none() | RATES), draw(st.none() | st.floats(0.01, 1e9))
        groups.append(
            Group(name=top, members=own, producer_byte_rate=limit, consumer_byte_rate=fetch, request_percentage=percent)
        )
        if draw(st.booleans()):
            guaranteed = GroupRates(producer_byte_rate=limit)
            groups.append(Group(name=f"{top}/in", guaranteed=guaranteed, members=(draw(members()),)))
    return draw(st.permutations(groups))


@pytest.mark.parametrize("form", FileFormat)
@given(groups=trees())
@settings(deadline=None, max_examples=40)
def test_a_file_in_any_format_reads_back_as_the_same_groups(form: FileFormat, groups: Sequence[Group]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"quotas.{form}"
        path.write_text("".join(file_text([], form, groups)), encoding="utf-8")
        found = read_declarations([str(path)])
    assert (found.problems, list(found.groups)) == ((), list(groups))


@given(before=trees(), after=trees())
@settings(deadline=None, max_examples=30)
def test_a_local_store_returns_what_was_put_there(before: Sequence[Group], after: Sequence[Group]) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(open_store(f"local:{folder}/q.db")) as store:
        store.replace_groups(before, expected=[])
        store.replace_groups(after, expected=before)
        assert list(store.groups()) == list(after)


@given(before=trees(), after=trees(), entity=TEXTS)
@settings(deadline=None, max_examples=60)
def test_a_policy_file_has_the_groups_and_everything_else_as_before(
    before: Sequence[Group], after: Sequence[Group], entity: str
) -> None:
    head = f"# {entity.encode('unicode_escape').decode()}\ninternal_principals = ['x']\n\n"
    tail = "\n# topics\n[thresholds]\ntotal = 1  # all\n"
    text = with_groups(head + tail, before)
    assert text.startswith(head + tail)
    text = with_groups(text + tail.replace("thresholds", "other"), after)
    assert text.startswith(head + tail)
    assert text.endswith(tail.replace("thresholds", "other")) or not before
    tables = load_toml(text)
    assert list(groups_from(tables.get("group", []), "x")) == list(after)
    assert tables.keys() - {"group"} == {"internal_principals", "thresholds", "other"}


@given(stored=trees(), declared=trees(), prune=st.booleans())
@settings(deadline=None, max_examples=50)
def test_what_was_merged_has_all_that_is_declared_and_merging_again_changes_nothing(
    stored: Sequence[Group], declared: Sequence[Group], *, prune: bool
) -> None:
    after = merged_groups(stored, declared, prune=lambda _: prune)
    names = [group.name for group in declared]
    assert [group for group in after if group.name in names] == list(declared)
    assert len(after) == (len(declared) if prune else len({group.name for group in (*stored, *declared)}))
    again = merged_groups(after, declared, prune=lambda _: prune)
    assert (again, group_changes(after, again)) == (after, ())

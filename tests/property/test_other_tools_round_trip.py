"""Random sets of quotas per tool: what its file can express reads back as it was, the rest is refused by name."""

import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.stores.other_tools import declared
from tests.support.stores.quota_files import same_content

from kafka_quotas.commands.other_tools.formats import Tool, recognised, tool_text
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, QuotaKey, ValueType

ODD_NAMES = (
    *(
        "null",
        "~",
        "no",
        "1",
        "1.0",
        "<default>",
        "default",
        "a: b",
        "- a",
        "#",
        "'",
        '"',
        "\\",
        "$web",
        "${a}",
        "$${a}",
    ),
    *("%{a}", "%%{a", "$", "`a`", "$(a)", "\n", "a\nb", "\r\n", "\t", "\x85", "\u2028", "\ufeff", "\x00", "\x7f", "é"),
    *("\U0001f600", " ", "a ", "&a", "*a", "!a", "{}", "[]", "[a,b]", "|", ">", "2>", ";", "&&", ",", "=", "a=b", "<<"),
    *("--user", "-", "--", "\\n", "a\\", "EOT", "CN=web,O=x", "CN=web", "CN=a.b", "User:a", "(a)"),
)
USUAL_NAMES = st.from_regex(r"(CN=t|[a-su-z])[a-z0-9]{0,4}([.-][a-z0-9]{1,4})?", fullmatch=True)
NAMES = (
    st.none() | USUAL_NAMES | st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(ODD_NAMES)
)
ADDRESSES = st.none() | st.ip_addresses().map(str)


def values(key: QuotaKey, *, small: bool) -> st.SearchStrategy[float]:
    whole = st.integers(1, 2**31 - 1).map(float)
    if small:
        return whole
    if key.value_type is ValueType.DOUBLE:
        return st.floats(1e-9, 1e18) | whole | st.just(float(key.unlimited))
    return st.integers(1, key.unlimited).map(float) | whole


def quotas(*names: str, small: bool = False) -> st.SearchStrategy[dict[str, float]]:
    pairs = [st.tuples(st.just(name), values(QUOTA_KEYS[name], small=small)) for name in names]
    return st.lists(st.one_of(pairs), min_size=1, max_size=3).map(dict)


Entries = st.SearchStrategy[tuple[Entity, dict[str, float]]]
PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION = QUOTA_KEYS


def users(names: st.SearchStrategy[str | None], *keys: str, small: bool = False) -> Entries:
    return st.tuples(st.builds(lambda name: Entity.of(user=name), names), quotas(*keys, small=small))


def clients(names: st.SearchStrategy[str | None], *keys: str) -> Entries:
    return st.tuples(st.builds(lambda name: Entity.of(client_id=name), names), quotas(*keys))


def pairs(names: st.SearchStrategy[str], client_ids: st.SearchStrategy[str | None], *keys: str) -> Entries:
    return st.tuples(st.builds(lambda a, b: Entity.of(user=a, client_id=b), names, client_ids), quotas(*keys))


CLIENT_KEYS = (PRODUCE, FETCH, REQUEST, MUTATION)
ENTRIES = st.one_of(
    users(NAMES, *CLIENT_KEYS),
    clients(NAMES, *CLIENT_KEYS),
    pairs(NAMES, NAMES, *CLIENT_KEYS),  # type: ignore[arg-type]
    st.tuples(st.builds(lambda ip: Entity.of(ip=ip), ADDRESSES), quotas(CONNECTION)),
)
NAMED = NAMES.filter(lambda name: name not in (None, "<default>"))
JIKKOU_KEYS = (PRODUCE, FETCH, REQUEST)
RPK_KEYS = (PRODUCE, FETCH, MUTATION)
FITTING: dict[Tool, Entries] = {
    Tool.KAFKA_CONFIGS: ENTRIES.filter(lambda entry: not any("\0" in (name or "") for _, name in entry[0].parts)),
    Tool.STRIMZI: users(st.none() | USUAL_NAMES, *CLIENT_KEYS, small=True),
    Tool.TERRAFORM: ENTRIES,
    Tool.JIKKOU: st.one_of(users(NAMES, *JIKKOU_KEYS), clients(NAMES, *JIKKOU_KEYS), pairs(NAMED, NAMES, *JIKKOU_KEYS)),
    Tool.RPK: st.one_of(users(NAMED, *RPK_KEYS), clients(NAMED, *RPK_KEYS), pairs(NAMED, NAMED, *RPK_KEYS)),
}
"""Entries that the tool can express."""
SUFFIXES = {Tool.KAFKA_CONFIGS: ".sh", Tool.TERRAFORM: ".tf"}
READ_AS = {Tool.JIKKOU: Tool.STRIMZI}
"""Manifests of either tool are read alike."""


def test_a_shell_reads_the_words_of_a_written_script_as_they_were(tmp_path: Path) -> None:
    names = [name for name in ODD_NAMES if "\0" not in name]
    content = {Entity.of(user=name): {"producer_byte_rate": 1.0} for name in names}
    program = tmp_path / "kafka-configs.sh"
    program.write_text("#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", tool_text(content, Tool.KAFKA_CONFIGS)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "BOOTSTRAP_SERVER": "x:1"},
        capture_output=True,
        check=True,
    )
    words = done.stdout.decode().split("\0")
    assert [name for before, name in pairwise(words) if before == "--entity-name"] == names


def check(tool: Tool, content: dict[Entity, dict[str, float]]) -> None:
    text = tool_text(content, tool)
    assert same_content(content, declared(tool, text).desired())
    if content:
        assert recognised(f"quotas{SUFFIXES.get(tool, '.yaml')}", text) is READ_AS.get(tool, tool)


@pytest.mark.parametrize("sets", [40, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("tool", Tool)
def test_what_a_tool_can_express_reads_back_as_it_was(tool: Tool, sets: int) -> None:
    @given(content=st.lists(FITTING[tool], min_size=1, max_size=4).map(dict))
    @settings(deadline=None, max_examples=sets, derandomize=True, database=None)
    def round_trip(content: dict[Entity, dict[str, float]]) -> None:
        check(tool, content)

    round_trip()


@pytest.mark.parametrize("sets", [150, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("tool", [tool for tool in Tool if tool is not Tool.TERRAFORM])  # which can express all
def test_what_a_tool_cannot_express_is_refused_by_name_and_nothing_else(tool: Tool, sets: int) -> None:
    seen: Counter[str] = Counter()

    @given(content=st.lists(ENTRIES | FITTING[tool], min_size=1, max_size=4).map(dict))
    @example(content={Entity.of(user="a\0"): {PRODUCE: 1.0}})  # all that a script can't express
    @settings(deadline=None, max_examples=sets, derandomize=True, database=None)
    def refusals(content: dict[Entity, dict[str, float]]) -> None:
        try:
            tool_text(content, tool)
        except DocumentError as error:
            refused = {problem.location.source for problem in error.problems}
            assert refused
            assert refused <= {str(entity) for entity in content}
            seen["refused"] += len(refused)
            content = {entity: each for entity, each in content.items() if str(entity) not in refused}
        seen["written"] += len(content)
        check(tool, content)

    refusals()
    assert seen["refused"]
    assert seen["written"] >= sets / 3

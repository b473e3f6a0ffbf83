"""1,000 random sets of quotas per tool: what its file can express reads back as it was, the rest is refused by name."""

import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
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
USUAL_NAMES = st.from_regex(r"(CN=)?[a-z][a-z0-9.-]{0,8}[a-z0-9]", fullmatch=True)
NAMES = (
    st.none() | USUAL_NAMES | st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(ODD_NAMES)
)
ADDRESSES = st.none() | st.ip_addresses().map(str)


def values(key: QuotaKey) -> st.SearchStrategy[float]:
    if key.value_type is ValueType.DOUBLE:
        return st.floats(1e-9, 1e18) | st.integers(1, 1000).map(float) | st.just(float(key.unlimited))
    return st.integers(1, key.unlimited).map(float) | st.integers(1, 10**9).map(float)


def quotas(*, for_ip: bool) -> st.SearchStrategy[dict[str, float]]:
    keys = [key for key in QUOTA_KEYS.values() if key.for_ip == for_ip]
    pairs = [st.tuples(st.just(key.name), values(key)) for key in keys]
    return st.lists(st.one_of(pairs), min_size=1, max_size=3).map(dict)


ENTRIES = st.one_of(
    st.tuples(st.builds(lambda user: Entity.of(user=user), NAMES), quotas(for_ip=False)),
    st.tuples(st.builds(lambda client_id: Entity.of(client_id=client_id), NAMES), quotas(for_ip=False)),
    st.tuples(st.builds(lambda a, b: Entity.of(user=a, client_id=b), NAMES, NAMES), quotas(for_ip=False)),
    st.tuples(st.builds(lambda ip: Entity.of(ip=ip), ADDRESSES), quotas(for_ip=True)),
)
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


@pytest.mark.parametrize("tool", Tool)
def test_what_a_tool_can_express_reads_back_as_it_was(tool: Tool) -> None:
    seen: Counter[str] = Counter()

    @given(content=st.lists(ENTRIES, min_size=1, max_size=4).map(dict))
    @settings(deadline=None, max_examples=1000, derandomize=True, database=None)
    def round_trip(content: dict[Entity, dict[str, float]]) -> None:
        try:
            text = tool_text(content, tool)
        except DocumentError as error:
            refused = {problem.location.source for problem in error.problems}
            assert refused <= {str(entity) for entity in content}
            assert refused
            content = {entity: each for entity, each in content.items() if str(entity) not in refused}
            text = tool_text(content, tool)
            seen["refused"] += len(refused)
        seen["sets"] += 1
        seen["written"] += len(content)
        assert same_content(content, declared(tool, text).desired())
        if content:
            assert recognised(f"quotas{SUFFIXES.get(tool, '.yaml')}", text) is READ_AS.get(tool, tool)

    round_trip()
    assert seen["sets"] >= 1000
    assert seen["written"] >= 200
    assert bool(seen["refused"]) is (tool is not Tool.TERRAFORM)  # which can express all of them

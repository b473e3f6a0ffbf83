"""Every scenario that is shipped: it can be read, can be run where it says, and has a page that the index lists."""

import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import pytest
from generators.documentation.documents import commands
from generators.measured_page import page_command

from kafka_quotas.loadtest.scenario.model import TargetNeed, read_scenario, shipped_names
from kafka_quotas.loadtest.scenario.preflight import HostLimits, TargetCapabilities, preflight, scaled

PAGES = Path(__file__).parents[2] / "docs" / "scenarios"
NEEDED = {
    "isolation",
    "kafkatest-quota",
    "kip124-compressed",
    "kip124-fetch-flood",
    "kip124-group",
    "kip124-many-connections",
    "kip124-stall",
    "kip124-tls",
    "kip124-two-quotas",
    "kip124-unauthorised",
    "kip13-bootstrap",
    "kip13-default",
    "kip219-timeout",
    "kip599-bucket",
    "kip599-burst",
    "kip599-delete",
    "kip599-strict",
    "kip612-connections",
    "null-client-id",
    "ratio",
    "topic-threshold",
}
"""The experiments and figures of the source documents."""
LAPTOP = HostLimits(open_files=20_000, max_maps=65_530)


def rows() -> Mapping[str, tuple[str, str]]:
    """What the index says: what each scenario shows, and what it needs."""
    index = (PAGES / "README.md").read_text("utf-8")
    lines = re.findall(r"^\| \[(\S+)\]\(\w+/(\S+)\.md\) \| (.+) \| (.+) \|$", index, re.MULTILINE)
    assert all(name == page for name, page, _, _ in lines)
    return {name: (shows, needs) for name, _, shows, needs in lines}


def pages() -> Mapping[str, Path]:
    """The page of each scenario by its name."""
    return {page.stem: page for page in PAGES.glob("*/*.md")}


def test_every_experiment_is_shipped() -> None:
    assert set(shipped_names()) >= NEEDED


@pytest.mark.parametrize("name", shipped_names())
def test_it_can_be_run_where_it_says(name: str) -> None:
    scenario = read_scenario(name)
    is_real = scenario.needs is TargetNeed.REAL_BROKER
    target = TargetCapabilities(embedded=not is_real, own_broker=is_real, through_daemon=not is_real, limits=LAPTOP)
    laptop = scaled(scenario, scenario.scaling.laptop)

    assert preflight(laptop, target) == ()
    assert scenario.source


def test_the_index_lists_what_is_shipped_as_it_is() -> None:
    needs = {TargetNeed.ANY: "any", TargetNeed.DAEMON: "daemon", TargetNeed.REAL_BROKER: "real broker"}
    scenarios = [read_scenario(name) for name in shipped_names()]

    assert rows() == {each.name: (each.title, needs[each.needs]) for each in scenarios}
    assert {name: page.parent.name for name, page in pages().items()} == folders_of_files()


def folders_of_files() -> Mapping[str, str]:
    """The folder of each scenario's file, by the scenario's name: its page is in one of the same name."""
    files = Path(str(resources.files("kafka_quotas.loadtest"))).glob("scenarios/*/*.yaml")
    return {file.stem: file.parent.name for file in files}


@pytest.mark.parametrize("name", shipped_names())
def test_its_page_says_what_to_expect_and_shows_what_came_out(name: str) -> None:
    page = pages()[name].read_text("utf-8")
    scenario = read_scenario(name)

    assert page.startswith(f"# {name}\n\n{scenario.title}.\n\nSource: {scenario.source}.\n")
    assert page_command(page)[:3] == ["load-test", "run", name]
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert (headings[:2], headings[-1]) == (["The load", "What to expect, and why"], "What came out")
    assert re.search(
        r"^## What came out\n\n.+\n\n```\n\d+ s of load after \d+ s of warm-up[^`]+```\n\Z", page, re.MULTILINE
    )


def commands_on(page: str) -> Iterator[list[str]]:
    """Yield the words of each command that a page names, in a line of a block or in the text."""
    for block, code in re.findall(r"^(kafka-quotas .+)$|`(kafka-quotas [^`]+)`", page, re.MULTILINE):
        yield shlex.split((block or code).replace("\n", " "))


@pytest.mark.parametrize("page", sorted(PAGES.rglob("*.md")), ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    options = {
        tuple(context.command_path.split()): {name for each in command.params for name in each.opts}
        for command, context in commands()
    }
    for words in commands_on(page.read_text("utf-8")):
        command = next(path for path in (tuple(words[:length]) for length in (3, 2, 1)) if path in options)
        assert len(command) > 1, words
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options[command]

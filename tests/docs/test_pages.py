"""What single pages promise: names that exist, every check and charge explained, links and badges that are true."""

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, Mutation, RequestTime
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.wire.protocol.api_table import API_TABLE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BYTES = {QuotaType.PRODUCE: "`producer_byte_rate`: the request", QuotaType.FETCH: "`consumer_byte_rate`: the response"}
TIMES = {
    RequestTime.CHARGED: "the client's",
    RequestTime.UNLESS_UNANSWERED: "the client's; exempt without acknowledgement",
    RequestTime.UNLESS_REPLICA: "the client's; exempt if a broker fetches (`internal_principals`)",
    RequestTime.UNLESS_BROKER: "exempt if a broker asks (`internal_principals`), else the client's",
    RequestTime.NOT_SERVED: "nobody: no broker serves them, it closes the connection",
}
MUTATIONS = {
    Mutation.NONE: "",
    Mutation.REQUESTED: "those that the request names",
    Mutation.CREATED: "those of topics that the broker creates in the client's name because of it",
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_the_badges_say_what_the_package_says() -> None:
    versions = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert f"python-{versions[0]}_to_{versions[-1]}-" in README
    assert f"licence-{PROJECT['license'].replace('-', '--')}-" in README
    assert "Development Status :: 4 - Beta" in PROJECT["classifiers"]
    assert "status-beta-" in README


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_the_readme_links_to_what_is_there(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_moving_picture_moves_and_loads_nothing() -> None:
    text = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    drawn = "".join(ET.fromstring(text).itertext())
    assert "Every quota held." in drawn
    assert text.count("@keyframes") > 10
    assert "prefers-reduced-motion" in text
    assert re.findall(r"https?://(?!www\.w3\.org)|<script|@import|url\(", text) == []


@pytest.mark.parametrize("target", ["demo", "quick", "test", "site", "docs", "check"])
def test_make_has_the_targets_that_the_pages_name(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_alerts_that_the_page_on_rollouts_names_exist() -> None:
    rules = (ROOT / "examples" / "prometheus" / "kafka-quota-alerts.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"alert `(\w+)`", page("how-to/rollout.md")))
    assert len(named) == 3
    assert named <= set(re.findall(r"alert: (\w+)", rules))


def test_the_quota_files_that_are_shown_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page("how-to/declarative.md"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "q.yaml").write_text(block, encoding="utf-8")
        assert run_cli("validate", str(tmp_path / "q.yaml"))[0] == 0


def test_every_check_of_the_doctor_is_explained() -> None:
    source = (ROOT / "src/kafka_quotas/commands/quotas/quota_checks.py").read_text(encoding="utf-8")
    table = source.partition("_CHECKS: ")[2].partition("\n}")[0]
    named = set(re.findall(r'^    "([a-z-]+)": \(', table, re.MULTILINE))
    assert {"shadowed", "below-one-batch", "quota-callback", "empty-znode"} <= named
    assert named <= set(re.findall(r"`([a-z-]+)`", page("how-to/visibility.md")))


def rows() -> dict[str, list[str]]:
    """By API, the other cells of its row."""
    section = page("reference/enforcement.md").partition("## What each API is charged with")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    named = [(name, others) for names, *others in cells[2:] for name in names.split(", ")]
    assert len(dict(named)) == len(named), "an API has two rows"
    return dict(named)


def test_every_api_has_a_row_that_says_what_it_is_charged_with() -> None:
    found = rows()
    assert set(found) == {API_TABLE[key].name for key in QUOTA_CHARGES}
    for key, row in QUOTA_CHARGES.items():
        size, time, partitions = found[API_TABLE[key].name]
        assert size == ("" if row.byte_rate is None else BYTES[row.byte_rate])
        assert time == TIMES[row.request_time]
        assert partitions.partition(";")[0] == MUTATIONS[row.mutation]


def test_the_versions_that_refuse_are_those_of_the_table() -> None:
    refusing = {API_TABLE[key].name: row for key, row in QUOTA_CHARGES.items() if row.strict_since is not None}
    found = rows()
    assert len(refusing) == 3
    for name, row in refusing.items():
        assert f"{name} {row.strict_since}" in found[name][2]

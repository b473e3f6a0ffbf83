"""`pipeline recommend --policy`: which group each client is in, and what the groups need."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.run_cli import printed, run_cli
from tests.support.processes.shown_commands import ROOT

POLICY = """
[[group]]
name = "team"
producer_byte_rate = "1MB"

[[group]]
name = "team/alice"
members = [{ user = "alice" }, { client_id_prefix = "x" }]

[[group]]
name = "team/others"
members = [{ user_pattern = "*" }]
guaranteed = { producer_byte_rate = "20kB" }

[[group]]
name = "nobody"
members = [{ user = "nobody" }]
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The recommendation of the recorded example, without what is said of groups."""
    folder = tmp_path_factory.mktemp("traffic")
    source = f"{ROOT}/examples/request-log/{{broker_id}}/*.gz"
    printed("pipeline", "ingest", "--source", source, "--timezone", "UTC", "--out", f"{folder}/traffic")
    (folder / "groups.toml").write_text(POLICY, encoding="utf-8")
    policy = ("--policy", f"{folder}/groups.toml")
    return ("pipeline", "recommend", f"{folder}/traffic", "--quota-window-num", "3", "--min-recorded", "30s", *policy)


def document(asked: tuple[str, ...], *options: str) -> Any:
    return json.loads(printed(*asked, *options, "--output", "json"))


def test_a_group_needs_what_its_clients_demand_together(asked: tuple[str, ...]) -> None:
    found = document(asked, "--default-of", "pair")
    demands = {(each["group"], each["key"]): each for each in found["groups"]}
    whole, alice, others = (demands[name, "producer_byte_rate"] for name in ("team", "team/alice", "team/others"))
    assert whole["clients"] == alice["clients"] + others["clients"]
    assert whole["needed"] == pytest.approx(alice["needed"] + others["needed"])
    assert (whole["limit"], others["guaranteed"], alice["guaranteed"]) == (1_000_000, 20_000, None)
    assert "nobody" not in {group for group, _ in demands}
    (own,) = (each for each in found["quotas"] if each["kind"] == "override")
    assert (own["user"], own["group"]) == ("alice", "team/alice")
    assert alice["needed"] == pytest.approx(own["evidence"]["needed"], rel=0.05)
    assert {each["group"] for each in found["quotas"] if each["kind"] == "default"} == {None}


def test_the_table_says_it_in_words_and_what_the_kind_of_default_hides(asked: tuple[str, ...]) -> None:
    code, out, err = run_cli(*asked)
    assert code == 0
    assert "of producer_byte_rate for 5 clients together, at broker 1; its limit is 1 MB/s" in out
    assert "warning: members of groups by client-id are not seen with --default-of user; --default-of pair sees" in err


def test_without_a_policy_no_group_is_mentioned(asked: tuple[str, ...]) -> None:
    found = document(asked[:-2])
    assert (found["groups"], {each["group"] for each in found["quotas"]}) == ([], {None})


def test_groups_that_do_not_fit_together_are_refused_before_the_work(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[[group]]\nname = "a/b"\n', encoding="utf-8")
    code, out, err = run_cli(*asked[:-1], str(tmp_path / "bad.toml"))
    assert (code, out) == (2, "")
    assert err.startswith("error: group a/b: there is no group a around it")

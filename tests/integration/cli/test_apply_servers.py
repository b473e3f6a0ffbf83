"""diff and apply on real servers: a refusal is listed and the rest is done, a changed store stops a plan."""

import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli


@pytest.fixture(params=["kafka4", "zookeeper"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a real store."""
    if request.param == "zookeeper":
        return str(request.getfixturevalue("zookeeper_chroot"))
    return f"kafka://{request.getfixturevalue('kafka4').bootstrap}"


def test_a_refused_entity_is_listed_and_a_plan_is_refused_once_the_store_has_changed(
    url: str, unique_name: str, tmp_path: Path
) -> None:
    def run(*argv: str) -> tuple[int, str, str]:
        journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
        return run_cli(*argv, "--store", url, environment=journal)

    def file(text: str) -> str:
        path = tmp_path / "q.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    user = f"- {{entity: {{user: {unique_name}}}, quotas: {{producer_byte_rate: %s}}}}\n"
    nobody = f"- {{entity: {{ip: {unique_name}.invalid}}, quotas: {{connection_creation_rate: 5}}}}\n"
    code, _, err = run("apply", file(user % 1000 + nobody))
    assert code == 1
    failures = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(failures) == 1
    assert f"{unique_name}.invalid" in failures[0]
    assert run("diff", file(user % 1000), "--exit-code")[0] == 0

    plan = str(tmp_path / "plan.json")
    code, out, _ = run("diff", file(user % 2000), "--out", plan, "--output", "json")
    assert code == 0
    assert [(change["old"], change["new"]) for change in json.loads(out)["changes"]] == [(1000, 2000)]
    assert run("alter", "--user", unique_name, "--add-config", "producer_byte_rate=3000")[0] == 0
    code, _, err = run("apply", plan)
    assert code == 1
    assert err.startswith("error: the store has changed since the plan was made: producer_byte_rate of user")
    assert run("apply", file(user % "null"), "--prune-limit", "100")[0] == 0

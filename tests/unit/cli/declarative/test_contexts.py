"""diff and apply over several contexts: each under its name, and no failure hides another context."""

import csv
import io
import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import done, refused, run_cli

QUOTAS = "- {entity: {user: alice}, quotas: {producer_byte_rate: 5MB}}\n"
BOTH = ("--context", "eu", "--context", "us")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of quotas and three contexts.

    The stores of `eu` and `us` are empty, and that of `gone` can't be reached.
    """
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name, store in (
        ("eu", f"local:{tmp_path}/eu.db"),
        ("us", f"local:{tmp_path}/us.db"),
        ("gone", "kafka://localhost:1"),
    ):
        assert run_cli("context", "set", name, "--store", store)[0] == 0
    (tmp_path / "q.yaml").write_text(QUOTAS)
    return str(tmp_path / "q.yaml")


def stored(context: str) -> object:
    return json.loads(run_cli("describe", "--context", context, "-o", "json")[1])["entries"]


def test_each_context_stands_under_its_name_and_is_changed(file: str, tmp_path: Path) -> None:
    out = done("apply", file, *BOTH)
    assert [line for line in out.splitlines() if ": local:" in line] == [
        f"eu: local:{tmp_path}/eu.db",
        f"us: local:{tmp_path}/us.db",
    ]
    assert out.count("Made 1 change to 1 entity") == 2
    assert stored("eu") == stored("us") != []
    ids = [entry["id"] for entry in json.loads(run_cli("revert", "--list", "-o", "json")[1])["entries"]]
    assert len(set(ids)) == 2, "each store's change can be reverted by itself"


def test_a_context_that_fails_hides_no_other(file: str) -> None:
    code, out, err = run_cli("apply", file, "--context", "gone", *BOTH)
    assert code == 1
    assert out.count("Made 1 change to 1 entity") == 2
    lines = err.splitlines()
    assert lines[0].startswith("error: gone: kafka://localhost:1 can't be reached")
    assert lines[1] == "error: 1 of 3 contexts failed"
    assert stored("eu") == stored("us") != []


def test_differences_end_with_their_code_unless_a_context_failed(file: str) -> None:
    assert run_cli("apply", file, "--context", "eu")[0] == 0
    assert run_cli("diff", file, *BOTH)[0] == 0
    assert run_cli("diff", file, *BOTH, "--exit-code")[0] == 3
    assert run_cli("diff", file, *BOTH, "--context", "gone", "--exit-code")[0] == 1
    assert run_cli("apply", file, "--context", "us")[0] == 0
    assert run_cli("diff", file, *BOTH, "--exit-code")[0] == 0


def test_machines_get_one_document_and_one_table(file: str) -> None:
    code, out, _ = run_cli("diff", file, *BOTH, "--context", "gone", "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"]) == (1, "kafka-quotas.diff-contexts/1")
    eu, us, gone = document["contexts"]
    assert (eu["context"], eu["error"], len(eu["changes"])) == ("eu", None, 1)
    assert (us["context"], us["changes"]) == ("us", eu["changes"])
    assert gone["error"]["message"].startswith("kafka://localhost:1 can't be reached")
    rows = list(csv.DictReader(io.StringIO(run_cli("diff", file, *BOTH, "-o", "csv")[1])))
    assert [(row["context"], row["user"], row["new"]) for row in rows] == [
        ("eu", "alice", "5000000"),
        ("us", "alice", "5000000"),
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("diff", *BOTH, "--context", "eu"), "--context eu is named twice"),
        (("diff", *BOTH, "--store", "local:x.db"), "--store and --context exclude each other"),
        (("diff", *BOTH, "--out", "plan.json"), "--out keeps the plan of one store"),
        (("apply", *BOTH, "--watch", "5"), "--watch is about one store"),
        (("apply", "--context", "eu", "--context", "su"), "there is no context 'su'"),
    ],
)
def test_what_is_about_one_store_is_refused(file: str, argv: tuple[str, ...], message: str) -> None:
    command, *options = argv
    err = refused(command, file, *options)
    assert message in err.splitlines()[0]


def test_a_plan_is_of_one_store(file: str, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    assert run_cli("diff", file, "--context", "eu", "--out", plan)[0] == 0
    code, _, err = run_cli("apply", plan, *BOTH)
    assert (code, err.splitlines()[0]) == (2, "error: a plan is of one store")

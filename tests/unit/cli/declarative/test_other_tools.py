"""import, export, diff, doctor and validate with files of other tools, and the comment for a pull request."""

import io
import sys
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.output.plan_view import markdown_comment
from kafka_quotas.commands.declarative.apply import DesiredState, diff
from kafka_quotas.core import extras
from kafka_quotas.stores import open_store

EXAMPLES = Path(__file__).parents[4] / "examples" / "other-tools"
OWN = """\
schema: kafka-quotas.quotas/1
entries:
  - {entity: {user: web}, quotas: {producer_byte_rate: 10485760, request_percentage: 200}}
  - {entity: {user: null}, quotas: {consumer_byte_rate: 2097152}}
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"local:{tmp_path / 'quotas.db'}"
    (tmp_path / "own.yaml").write_text(OWN)
    environment = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
    assert run_cli("apply", str(tmp_path / "own.yaml"), "--store", url, environment=environment)[0] == 0
    return url


@pytest.mark.parametrize("name", ["quotas.sh", "kafka-users.yaml", "quotas.tf"])
def test_every_example_says_the_same(name: str, store: str) -> None:
    path = str(EXAMPLES / name)
    code, out, err = run_cli("import", path)
    assert (code, out) == (0, OWN)
    left_out = f"note: left out: {path}:10: topics have no quotas\n" if name == "quotas.sh" else ""
    assert err == left_out
    code, out, err = run_cli("diff", path, "--store", store, "--exit-code")
    assert (code, out) == (0, "")
    assert err == f"{left_out}note: no differences from {store}\n"
    code, out, err = run_cli("validate", path)
    assert (code, out, err) == (0, "1 file, 2 entities: OK\n", left_out)


def test_a_folder_has_files_of_several_tools(tmp_path: Path) -> None:
    for name in ("quotas.tf", "main.tf"):
        (tmp_path / name).write_text((EXAMPLES / "quotas.tf").read_text() if name == "quotas.tf" else "locals {}\n")
    (tmp_path / "more.yaml").write_text("- {entity: {user: other}, quotas: {producer_byte_rate: 20M}}\n")
    (tmp_path / "quotas.sh").write_text("rm -rf $EVERYTHING\n")  # of a folder, only files that declare something
    assert run_cli("validate", str(tmp_path))[1] == "3 files, 3 entities: OK\n"


@pytest.mark.parametrize("form", ["kafka-configs", "strimzi", "terraform", "jikkou", "rpk"])
def test_what_is_exported_is_read_back_without_a_difference(form: str, store: str, tmp_path: Path) -> None:
    selector = ("--selector", "user=web") if form == "rpk" else ()  # which has no file for defaults
    suffix = {"kafka-configs": "sh", "terraform": "tf"}.get(form, "yaml")
    path = tmp_path / f"exported.{suffix}"
    if form == "rpk":
        run_cli("alter", "--user", "web", "--delete-config", "request_percentage", "--store", store)
    code, out, err = run_cli("export", "--format", form, "--out", str(path), *selector, "--store", store)
    assert (code, out) == (0, ""), err
    code, out, _ = run_cli("diff", str(path), "--exit-code", "--store", store)
    assert (code, out) == (0, "")


def test_a_name_shows_the_format_and_a_pipe_its_content(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.tf"
    assert run_cli("export", "--out", str(path), "--store", store)[0] == 0
    assert path.read_text().startswith('resource "kafka_quota" "user_web" {')
    for name in ("quotas.tf", "kafka-users.yaml", "quotas.sh"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((EXAMPLES / name).read_bytes())))
        assert run_cli("import", "-")[:2] == (0, OWN)
    assert run_cli("import", str(EXAMPLES / "quotas.tf"), "--format", "rpk")[0] == 2


def test_what_cannot_be_exported_is_listed_and_nothing_is_written(store: str, tmp_path: Path) -> None:
    run_cli("alter", "--client", "app", "--add-config", "producer_byte_rate=20M", "--store", store)
    run_cli("alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=5", "--store", store)
    path = tmp_path / "users.yaml"
    code, out, err = run_cli("export", "--format", "strimzi", "--out", str(path), "--store", store)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: client-id app: Strimzi has quotas of users alone",
        "error: ip 10.0.0.1: Strimzi has quotas of users alone",
        "hint: nothing was written; --selector exports some entities alone",
    ]
    assert not path.exists()


def test_a_misspelt_format_is_refused(store: str, tmp_path: Path) -> None:
    code, _, err = run_cli("export", "--format", "teraform", "--store", store)
    assert (code, err) == (2, "error: unknown format: 'teraform'\nhint: did you mean terraform?\n")
    code, _, err = run_cli("export", "--out", str(tmp_path / "quotas.txt"), "--store", store)
    assert code == 2
    assert "does not show the format" in err


def test_a_file_without_quotas_is_refused_with_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "topics.sh"
    path.write_text("kafka-configs --bootstrap-server x:1 --alter --add-config retention.ms=1 --topic t\n")
    code, out, err = run_cli("import", str(path))
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: no quotas are declared in {path}; left out: {path}:1: topics have no quotas"


def test_terraform_without_its_parser_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "hcl2" else True)
    code, _, err = run_cli("import", str(EXAMPLES / "quotas.tf"))
    assert code == 2
    assert err.startswith("error: Terraform files need python-hcl2, not installed here\nhint: ")
    assert "python-hcl2" in err.splitlines()[1]


def test_doctor_looks_at_files_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("- {entity: {user: web}, quotas: {producer_byte_rate: 5}}\n")
    code, out, err = run_cli("doctor", str(path), "--columns", "severity,about")
    assert code == 0
    assert f"user web ({path}:1)" in out
    assert err == f"note: 1 finding among 1 entity in {path}\n"
    code, out, err = run_cli("doctor", str(EXAMPLES / "quotas.tf"))
    assert (code, out) == (0, "")
    code, _, err = run_cli("doctor", str(path), "--store", f"local:{tmp_path / 'q.db'}")
    assert (code, err.splitlines()[0]) == (2, "error: doctor checks files or a store")


def comment(store: str, text: str, tmp_path: Path, *, limit: int = 0) -> str:
    (tmp_path / "new.yaml").write_text(text)
    opened = open_store(store)
    try:
        return markdown_comment(diff(opened, DesiredState(paths=[str(tmp_path / "new.yaml")])), limit=limit)
    finally:
        opened.close()


def test_the_comment_says_what_changes_for_whom(store: str, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text("- {entity: {user: web}, quotas: {producer_byte_rate: 5MiB}}\n")
    code, out, err = run_cli("diff", str(tmp_path / "new.yaml"), "--output", "markdown", "--store", store)
    assert code == 0
    assert out.splitlines() == [
        "### Kafka quotas: 0 to add, 1 to change, 0 to remove",
        "",
        f"Compared with `{store}`; 1 client tightened, 0 loosened.",
        "",
        "**Changes**",
        "",
        "| change   | entity     | quota                |      old |     new |",
        "|:---------|:-----------|:---------------------|---------:|--------:|",
        "| change   | `user web` | `producer_byte_rate` | 10 MiB/s | 5 MiB/s |",
        "",
        "**Clients whose effective quota changes, per broker**",
        "",
        "| client                            | quota   |   before |   after | gets   | set on     |",
        "|:----------------------------------|:--------|---------:|--------:|:-------|:-----------|",
        "| `user web, client-id (any other)` | produce | 10 MiB/s | 5 MiB/s | less   | `user web` |",
        "",
        "Left alone, not declared: `default user`.",
    ]
    assert "note: left alone, not declared: default user" in err


def test_a_comment_without_changes_is_short(store: str, tmp_path: Path) -> None:
    assert comment(store, OWN, tmp_path) == f"### Kafka quotas: nothing changes\n\nThey are as in `{store}`."


def test_a_long_comment_is_folded_and_cut(store: str, tmp_path: Path) -> None:
    rows = "".join(f"- {{entity: {{user: u{number}}}, quotas: {{producer_byte_rate: 5}}}}\n" for number in range(300))
    text = comment(store, rows, tmp_path, limit=100)
    assert "<details><summary><b>Changes</b> (300)</summary>\n\n|" in text
    assert text.count("\n| add ") == 100
    assert text.count("the first 100 of 300; --limit 0 shows all") == 2
    assert text.count("</details>") == 2
    assert len(text) < 65_536  # what GitHub takes


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("@org/team", "`user @org/team`"),
        ("a|b", "`user a\\|b`"),
        ("<img src=x>", "`user '<img src=x>'`"),
        ("`x`", "`` user `x` ``"),
        ("a\nb", "`user 'a\\nb'`"),
    ],
)
def test_no_name_is_markup(name: str, shown: str, store: str, tmp_path: Path) -> None:
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
    text = comment(store, f'- {{entity: {{user: "{escaped}"}}, quotas: {{producer_byte_rate: 5}}}}\n', tmp_path)
    assert f"| add      | {shown}" in text

"""`pipeline usage` and `pipeline replay` as a user runs them, on this machine, and a floor of `recommend`."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.pipeline.events import BASE_MS, events_folder, random_events
from tests.support.processes.run_cli import refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.groups.group import Group, GroupMember
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, USAGE, USAGE_PROFILE, WHATIF, TableSchema
from kafka_quotas.stores import open_store
from kafka_quotas.stores.files.journal import Journal, JournalEntry

QUOTAS = "entries:\n  - {entity: {user: null}, quotas: {producer_byte_rate: %s}}\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Records of 120 seconds."""
    return str(events_folder(tmp_path_factory.mktemp("events") / "data", random_events(600)))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, limit in (("tight.yaml", 2_000), ("loose.yaml", 900_000)):
        (tmp_path / name).write_text(QUOTAS % limit)
    return [str(tmp_path / "tight.yaml"), str(tmp_path / "loose.yaml")]


def require_columns(out: Path, *tables: TableSchema) -> None:
    for table in tables:
        found = DeltaTable(out / table.name)
        rows = found.to_pyarrow_table()
        assert rows.schema.names == list(table.column_names)
        assert set(rows["dt"].cast("string").to_pylist()) == {"2026-11-21"}
        assert len(set(rows["run_id"].to_pylist())) == 1
        assert all(field.metadata["comment"] for field in found.schema().fields)


def test_two_proposals_and_their_tables(tmp_path: Path, data: str, files: list[str]) -> None:
    out = tmp_path / "out"
    code, printed, told = run_cli(
        "pipeline", "replay", data, "--quotas", *files, "--engine", "local", "--out", str(out), "-o", "json"
    )
    assert code == 0, told
    rows = json.loads(printed)["rows"]
    assert [row["scenario"] for row in rows if row["model"] == "open"] == sorted(
        (row["scenario"] for row in rows if row["model"] == "open"), reverse=True
    )
    tight = [row for row in rows if row["scenario"] == files[0]]
    assert {row["model"] for row in tight} == {"open", "closed"}
    assert all(row["throttled_n"] > 0 for row in tight)
    assert all(row["throttled_n"] == 0 and row["first_ms"] is None for row in rows if row["scenario"] == files[1])
    assert "note: using the local engine (as requested)" in told
    require_columns(out, WHATIF)


def test_the_quotas_in_force_at_each_time_are_taken_from_the_journal(tmp_path: Path, data: str) -> None:
    default = Entity.of(user=None)
    store = new_store(tmp_path, {default: {"producer_byte_rate": 900_000.0}})
    journal = Journal(tmp_path / "journal.jsonl")
    for at_ms, old, new in ((BASE_MS + 60_500, 2_000.0, 1_000_000.0), (BASE_MS + 999_000, 1_000_000.0, 900_000.0)):
        changes = (PlannedChange(entity=default, key="producer_byte_rate", old=old, new=new),)
        entry = JournalEntry(
            entry_id=str(at_ms), time_ms=at_ms, command="alter", user="me", store_url=store, changes=changes
        )
        journal.append(entry)
    journaled = {"KAFKA_QUOTAS_JOURNAL": str(journal.path)}
    local = ("--engine", "local", "-o", "json")

    def shown(*argv: str) -> Any:
        code, printed, told = run_cli("pipeline", *argv, "--store", store, *local, environment=journaled)
        assert code == 0, told
        return json.loads(printed)

    loose = shown("replay", data, "--spans", "--out", str(tmp_path / "loose"))
    assert not any(row["throttled_n"] for row in loose["rows"])
    rows = shown("replay", data, "--quotas", "journal", "--spans", "--out", str(tmp_path / "out"))["rows"]
    assert rows[0]["scenario"] == f"{store} by the journal"
    assert {row["quota"] for row in rows} == {1_000_000.0}
    spans = DeltaTable(tmp_path / "out" / "throttle_spans").to_pyarrow_table().to_pylist()
    of_open = [each["start_at"].timestamp() * 1000 for each in spans if each["model"] == "open"]
    assert of_open
    assert max(of_open) < BASE_MS + 60_000  # times are cut to whole seconds
    code, _, told = run_cli("pipeline", "usage", data, "--store", store, *local, environment=journaled)
    assert (code, told.count(f"note: 1 change of quotas in {store} came while this was recorded")) == (0, 1)
    used = shown("usage", data, "--quotas", "journal")
    assert used["quotas"] == f"{store} by the journal"
    assert {each["quota"] for each in used["buckets"] if each["quota_type"] == "produce"} == {1_000_000.0}


GROUPS = """group:
  - {name: team, producer_byte_rate: 1k, members: [{user: user-1}, {client_id_pattern: "client-*"}, {listener: X}]}
"""


def test_a_file_with_groups_shows_what_their_limits_hold_back(tmp_path: Path, data: str, files: list[str]) -> None:
    grouped, out = tmp_path / "grouped.yaml", tmp_path / "out"
    grouped.write_text(Path(files[1]).read_text() + GROUPS)
    asked = ("pipeline", "replay", data, "--quotas", str(grouped), files[1], "--engine", "local")
    code, printed, told = run_cli(*asked, "--spans", "--out", str(out), "-o", "json")
    assert code == 0, told
    rows = json.loads(printed)["rows"]
    groups = [row for row in rows if row["group"] is not None]
    named = {
        tuple(row[name] for name in ("scenario", "group", "user", "client_id", "quota_type", "quota")) for row in groups
    }
    assert named == {(str(grouped), "team", None, None, "produce", 1000.0)}
    assert all(row["throttled_n"] > 0 for row in groups)
    own = [row for row in rows if row["group"] is None and row["quota_type"] == "produce"]
    held = {row["scenario"]: row["throttled_n"] for row in sorted(own, key=lambda row: row["throttled_n"])}
    assert (held[str(grouped)] > 0, held[files[1]]) == (True, 0)
    assert "warning: members of groups by listener or address are not seen, as the records have neither" in told
    require_columns(out, WHATIF, THROTTLE_SPANS)
    of_groups = {
        (row["user"], row["client_id"])
        for table in ("whatif", "throttle_spans")
        for row in DeltaTable(out / table).to_pyarrow_table().to_pylist()
        if row["user"].startswith(":")
    }
    assert of_groups == {(":group", "team")}
    assert "group team" in run_cli(*asked, "--limit", "5")[1]


def test_groups_of_the_store_are_replayed_without_a_file_and_beside_a_sweep(tmp_path: Path, data: str) -> None:
    store = new_store(tmp_path, {})
    with closing(open_store(store)) as opened:
        member = GroupMember(user_prefix="user-")
        opened.replace_groups([Group(name="all", members=(member,), consumer_byte_rate=2_000.0)], expected=())
    (tmp_path / "grouped.yaml").write_text(GROUPS)
    for proposed, name in ((("--store", store), "all"), (("--quotas", f"{tmp_path}/grouped.yaml"), "team")):
        sweep = ("--sweep", "producer_byte_rate=1kB,1MB") if name == "team" else ()
        code, printed, told = run_cli("pipeline", "replay", data, *proposed, *sweep, "--engine", "local", "-o", "json")
        assert code == 0, told
        rows = [row for row in json.loads(printed)["rows"] if row["group"] is not None]
        assert {row["group"] for row in rows} == {name}
        assert len({row["scenario"] for row in rows}) == (3 if sweep else 1)


def test_without_any_quota_nothing_is_replayed(tmp_path: Path, data: str) -> None:
    code, printed, told = run_cli("pipeline", "replay", data, "--store", new_store(tmp_path, {}), "--engine", "local")
    assert code == 0, told
    assert "0 of 0 rows throttled" in printed
    assert "note: nothing was replayed: no recorded event falls under a proposed quota" in told


def test_a_sweep_for_people(data: str) -> None:
    code, printed, told = run_cli(
        "pipeline", "replay", data, "--sweep", "producer_byte_rate=1kB..1MB", "--model", "closed",
        "--engine", "local", "--limit", "4",
    )  # fmt: skip
    assert code == 0, told
    assert "closed: a bucket is one client that waits out each delay" in printed
    assert "producer_byte_rate=1000" in printed
    assert "1 kB/s" in printed


def test_usage_against_a_file_of_quotas(tmp_path: Path, data: str, files: list[str]) -> None:
    out = tmp_path / "out"
    code, printed, told = run_cli(
        "pipeline", "usage", data, "--quotas", files[0], "--out", str(out), "-o", "json", "--engine", "local"
    )
    assert code == 0, told
    buckets = json.loads(printed)["buckets"]
    assert [row["quota"] for row in buckets if row["quota_type"] == "produce"] == [2_000.0] * 10
    require_columns(out, USAGE, USAGE_PROFILE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "holds no ingested data"),
        (["DATA", "--quotas", "missing.yaml"], "missing.yaml"),
        (["DATA", "--sweep", "producer_byte_rate=5MB..1MB"], "is empty"),
        (["DATA", "--sweep", "producer_byte_rate=1MB,2MB", "--sweep", "producer_byte_rate=2MB,3MB"], "proposed twice"),
    ],
)
def test_what_can_not_be_meant_is_one_line(data: str, tmp_path: Path, arguments: list[str], message: str) -> None:
    named = [data if each == "DATA" else each for each in arguments]
    code, _, told = run_cli("pipeline", "replay", *named, "--store", new_store(tmp_path, {}))
    assert code in (1, 2)
    assert message in told
    assert "Traceback" not in told


@pytest.mark.parametrize("floor", ["2e15", "9" * 400])
def test_a_floor_that_means_nothing_is_refused(tmp_path: Path, floor: str) -> None:
    err = refused("pipeline", "recommend", str(tmp_path), "--fetch-floor", floor)
    assert f"too large: {floor}" in err

"""Result tables as DuckDB writes them: days are replaced, others stay, and a place that takes none is named."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.engine.sql import DuckTables, ResultRun, duck_errors, write_result
from kafka_quotas.pipeline.tables.results import USED, WINDOW
from kafka_quotas.pipeline.tables.schemas import NAMES, USAGE

DAY_MS = 86_400_000


def write(out: Path, run_id: str, *days: tuple[int, int]) -> None:
    """Write a window of each day, with some bytes."""
    usual: dict[str, Any] = {"cluster": "c", "broker_id": 1, "quota_type": "produce", "user": "alice", "client_id": ""}
    rows = [usual | {"window_start_ms": day * DAY_MS + 60_000, "window_s": 60, "bytes": size} for day, size in days]
    tables = DuckTables()
    schema = pa.schema([*(USED.field(name) for name in NAMES), *WINDOW])
    nothing = {field.name: 0 for field in WINDOW}
    named = tables.add("windows", pa.Table.from_pylist([nothing | row for row in rows], schema))
    run = ResultRun(quotas="q.yaml", day=date(1970, 1, 1), run_id=run_id)
    write_result(tables, named, str(out), USAGE, run, day_of="window_start_ms")


def test_a_run_replaces_its_own_days_and_leaves_others(tmp_path: Path) -> None:
    write(tmp_path, "first", (1, 10), (2, 20))
    reader = DeltaTable(tmp_path / "usage")
    write(tmp_path, "second", (2, 21), (3, 30))
    assert sorted(reader.to_pyarrow_table()["bytes"].to_pylist()) == [10, 20]
    rows = DeltaTable(tmp_path / "usage").to_pyarrow_table().to_pylist()
    found = sorted((row["dt"].day - 1, row["bytes"], row["run_id"]) for row in rows)
    assert found == [(1, 10, "first"), (2, 21, "second"), (3, 30, "second")]
    assert {(row["user"], row["client_id"], row["quotas"]) for row in rows} == {("alice", None, "q.yaml")}
    assert all(row["window_start"].timestamp() * 1000 == (row["dt"].day - 1) * DAY_MS + 60_000 for row in rows)
    write(tmp_path, "none")
    assert DeltaTable(tmp_path / "usage").to_pyarrow_table().num_rows == 3


def test_a_table_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "usage"), pa.table({"entity_id": [1]}))
    with pytest.raises(UsageError, match=r"usage was written by an earlier version"):
        write(tmp_path, "first", (1, 10))


def test_a_place_that_takes_no_table_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KafkaQuotasError, match=r"the table usage .*file failed") as caught:
        write(tmp_path / "file", "first", (1, 10))
    assert "\n" not in caught.value.message


def test_of_runs_at_once_one_has_the_day(tmp_path: Path) -> None:
    write(tmp_path, "first", (1, 10), (2, 20))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda size: write(tmp_path, f"run {size}", (1, size)), range(8)))
    rows = DeltaTable(tmp_path / "usage").to_pyarrow_table().to_pylist()
    assert len(rows) == 2
    assert {f"run {row['bytes']}" for row in rows if row["dt"].day == 2} == {row["run_id"] for row in rows} - {"first"}


def test_an_error_of_duckdb_is_one_line_that_says_what_was_done() -> None:
    with (
        pytest.raises(KafkaQuotasError, match=r"^ranking what was used failed: Catalog Error.*nowhere") as caught,
        duck_errors("ranking what was used"),
    ):
        DuckTables().query("SELECT nothing\n FROM nowhere")
    assert "\n" not in caught.value.message

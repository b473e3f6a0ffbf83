"""Folders in which Spark writes what waits for a commit."""

from pathlib import Path

from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import staging_folder


def test_what_killed_ingests_on_spark_left_halfway_is_deleted_after_a_day(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path))
    lake.create()
    running = staging_folder(lake, PACKED_EVENTS)
    abandoned = f"staged-1000-{running.rpartition('-')[2]}"
    for folder in (running, abandoned):
        for place in ("_temporary/0", "dt=2026-11-21"):
            (tmp_path / "events" / folder / place).mkdir(parents=True)
            (tmp_path / "events" / folder / place / "part-0.parquet").write_bytes(b"PAR1")
    staging_folder(lake, PACKED_EVENTS)
    left = {str(path.relative_to(tmp_path / "events")) for path in (tmp_path / "events").rglob("*.parquet")}
    whole = {f"{folder}/dt=2026-11-21/part-0.parquet" for folder in (running, abandoned)}
    assert left == {f"{running}/_temporary/0/part-0.parquet", *whole}

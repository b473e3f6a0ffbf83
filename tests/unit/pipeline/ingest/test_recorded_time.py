"""What lies between recordings, and rubbish beside them: neither counts as recorded."""

from pathlib import Path

import pytest
from tests.support.pipeline.logs import log_text, request_line
from tests.support.processes.run_cli import run_cli

from kafka_quotas.pipeline.engine.events import recorded_events
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents

LATER = [request_line(stamp=f"[2026-11-21 15:00:{second:02},500]") for second in range(40)]


def ingest(folder: Path, *arguments: str) -> tuple[int, str, str]:
    common = ("--out", str(folder / "data"), "--engine", "local", "--timezone", "UTC", "--broker-id", "1")
    return run_cli("pipeline", "ingest", *common, *arguments)


def recorded_s(folder: Path) -> int:
    tables, rows = DuckTables(), PackedEvents(Lake(url=str(folder / "data"))).dataset()
    return recorded_events(tables, tables.add("events", rows)).seconds


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("", 40),
        ("".join(LATER), 80),
        (request_line(stamp="[2035-01-01 00:00:00,000]"), 41),
        (request_line(stamp="[9999-12-30 00:00:00,000]") + request_line(stamp="[1971-01-01 00:00:00,000]"), 42),
        (request_line(stamp="[2026-11-21 12:20:00,600]"), 1201),
    ],
)
def test_gaps_and_stray_stamps_are_not_recorded_time(tmp_path: Path, lines: str, seconds: int) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_text(log_text(40) + lines, encoding="utf-8")
    code, _, err = ingest(tmp_path, str(log))
    assert code == 0, err
    assert recorded_s(tmp_path) == seconds


def test_other_files_in_a_folder_are_left_out_in_one_line(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "kafka-request.log").write_text(log_text(40), encoding="utf-8")
    (logs / "server.log").write_text("[2026-11-21 12:00:00,000] INFO started (kafka.server.KafkaServer)\n" * 9)
    (logs / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    code, out, err = ingest(tmp_path, str(logs))
    assert code == 0, err
    (note,) = [line for line in err.splitlines() if "no known form" in line]
    assert note == f"note: 2 files of no known form left out, such as {logs / 'picture.png'}"
    assert "quarantined            0" in out


def test_a_file_of_no_known_form_that_was_named_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-21 12:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    for named in (str(log), str(tmp_path)):
        code, _, err = ingest(tmp_path, named)
        assert code == 2
        assert f"the form of {log} is unknown" in err

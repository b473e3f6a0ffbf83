"""The demo as a user runs it: what it shows, what it keeps, and that nothing of it stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes.awaiting import await_true

DAEMON = re.compile(r"clients -> daemon (?P<address>\S+) -> embedded cluster")


def start(folder: Path) -> "subprocess.Popen[str]":
    """The demo, with a temporary folder of its own."""
    (folder / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_quotas", "demo", "--out", str(folder / "kept")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """Whether the process exists and is more than an entry that nobody has asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.measuring
def test_every_quota_holds_and_the_evidence_is_kept(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        out, err = process.communicate(timeout=240)

    assert (process.returncode, err) == (0, ""), out
    assert out.splitlines()[-1] == "Every quota held."
    assert "quota window 3 x 1 s" in out
    assert "$ kafka-quotas alter --client greedy --add-config producer_byte_rate=2MB" in out
    assert re.search(r"greedy +producer_byte_rate +2 MB/s +7", out)
    assert out.isprintable() or "\x1b" not in out  # no colours where nobody looks
    document = json.loads((tmp_path / "kept" / "run.json").read_text())
    verdicts = {entity["client_id"]: entity["verdict"] for entity in document["entities"]}
    assert verdicts["greedy"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert 0.87 <= verdicts["reader"]["ratio"] <= 1.02
    assert {name: verdict["kind"] for name, verdict in verdicts.items()} == {
        "greedy": "greedy",
        "modest": "modest",
        "unlimited": "unlimited",
        "reader": "greedy",
    }
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == [
        "report.html",
        "run.json",
        "run.png",
        "samples.parquet",
    ]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Load for"):
                break
        started = children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=240)

    assert len(started) == 1
    assert (process.returncode, err) == (130, "")
    await_true(lambda: not any(runs(pid) for pid in started), "what the demo started is gone")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_daemon_ends_where_the_demo_is_killed(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Load for"):
                break
        started = children(process.pid)
        process.kill()

    assert len(started) == 1
    await_true(lambda: not any(runs(pid) for pid in started), "what the demo started is gone")


def test_a_folder_that_cannot_be_made_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file is in the way")

    with start(tmp_path) as process:
        out, err = process.communicate(timeout=240)

    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: can't make the folder ")

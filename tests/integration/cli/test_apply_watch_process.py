"""apply --watch as a process: it corrects drift, serves metrics, and ends when told."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.store import Alteration

DEADLINE_S = 240.0
ALICE = Entity.of(user="alice")


def test_drift_is_corrected_and_told_until_sigterm(tmp_path: Path) -> None:
    quotas = tmp_path / "q.yaml"
    quotas.write_text("- {entity: {user: alice}, quotas: {producer_byte_rate: 7}}\n")
    log = tmp_path / "log"
    command = [
        sys.executable, "-m", "kafka_quotas", "apply", str(quotas), "--store", f"local:{tmp_path / 'q.db'}",
        "--watch", "1", "--metrics", "127.0.0.1:0",
    ]  # fmt: skip
    environment = os.environ | {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
    store = LocalStore(tmp_path / "q.db")
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as process:
        try:
            await_true(lambda: "round 1: changed 1 quota" in log.read_text(), "the first round is over")
            store.alter([Alteration(entity=ALICE, changes={"producer_byte_rate": 99.0})])
            await_true(lambda: store.describe(EVERYTHING)[0].quotas["producer_byte_rate"] == 7.0, "drift is corrected")
            await_true(
                lambda: "changed 1 quota" in log.read_text().partition("round 1: changed 1 quota")[2],
                "drift is logged",
            )
            served = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", log.read_text())
            assert served is not None
            with urllib.request.urlopen(served[1], timeout=240) as answer:
                assert b"kafka_quotas_drift_corrected 2.0\n" in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            store.close()

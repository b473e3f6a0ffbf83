"""`load-test run`: a scenario to its verdict, and everything put back however it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.processes.awaiting import await_true
from tests.support.processes.run_cli import run_cli
from tests.support.stores.questions import quotas_of

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration

RATE = "producer_byte_rate"
SOON_S = 240.0


def scenario(folder: Path, *, client: str, duration: str, extra: str = "") -> str:
    """The path of a scenario in which a client is held to 300 kB/s, and its default to 1 MB/s."""
    path = folder / "scenario.yaml"
    path.write_text(
        f"""
schema: kafka-quotas.scenario/1
name: {client}
title: a client is held to its quota
window: {{samples: 3, seconds: 1}}
duration: {duration}
warmup: 1s
solo: 1s
topics: [{{name: written, partitions: 2}}]
quotas:
  - {{entity: {{client-id: {client}}}, set: {{{RATE}: 300kB/s}}}}
entities:
  - {{client-id: {client}, does: produce, topic: written, rate: 600kB/s}}
{extra}""",
        encoding="utf-8",
    )
    return str(path)


class Cluster:
    """What a run may change at a cluster, as somebody beside it sees it."""

    def __init__(self, kafka: Kafka, client: str) -> None:
        self._store = open_store(f"kafka://{kafka.bootstrap}")
        self._topics = TopicAdmin(kafka.bootstrap, settings=StoreSettings())
        self._client = client

    def rate(self) -> float | None:
        """The client's own quota as it is stored."""
        return quotas_of(self._store, Entity.of(client_id=self._client)).get(RATE)

    def set_rate(self, rate: float | None) -> None:
        (result,) = self._store.alter([Alteration(entity=Entity.of(client_id=self._client), changes={RATE: rate})])
        assert result.error is None

    def topics(self) -> tuple[str, ...]:
        """The topics of runs of the scenario named as the client."""
        return self._topics.named(f"kafka-quotas-{self._client}-")

    def close(self) -> None:
        self._store.close()
        self._topics.close()


@contextmanager
def running(arguments: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`kafka-quotas load-test ...` as a process of its own.

    Gone at the end.
    """
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_quotas", "load-test", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_QUOTAS_")},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.measuring
def test_a_scenario_runs_on_the_embedded_cluster_through_the_daemon(tmp_path: Path, unique_name: str) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    extra = "  - {client-id: other, does: produce, topic: written, rate: 20rec/s, control: true}\n"
    extra += 'expect: ["entity(other).throttle.count == 0"]\ncontrol-factor: 100\n'
    file = scenario(tmp_path, client=unique_name, duration="6s", extra=extra)

    code, printed, err = run_cli(
        *("load-test", "run", file, "--journal-dir", str(journals), "--out", str(out)),
        *("--experiment", "0s", "--output", "json"),
    )

    document = json.loads(printed)
    failed = [each for each in document["judgements"] if each["state"] not in ("met", "not checked")]
    assert (code, failed) == (0, []), err
    held, other = document["entities"]
    assert held["verdict"]["quota"] == 300_000
    assert held["throttle"]["count"] > 0
    assert (other["control"], other["verdict"]["quota"]) == (True, None)
    assert other["latency"]["response_solo"]["count"] > 0
    assert {each["aspect"] for each in document["judgements"]} >= {"rate", "throttle time", "isolation", "expectation"}
    assert json.loads((out / "run.json").read_text(encoding="utf-8")) == document
    assert list(journals.iterdir()) == []
    assert err.splitlines()[:2] == [
        "note: setting 1 quota",
        "note: 6 s are made 17 s: 5 windows of 3 s show whether a quota holds",
    ]


def test_a_killed_run_is_put_back_by_restore(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    arguments = ("run", scenario(tmp_path, client=unique_name, duration="300s"), "--yes")
    restore = ("load-test", "restore", "--journal-dir", str(journals))
    with closing(Cluster(kafka4, unique_name)) as cluster:
        cluster.set_rate(5e6)
        with running(
            (*arguments, "--bootstrap-server", kafka4.bootstrap, "--journal-dir", str(journals)), tmp_path / "log"
        ) as process:
            await_true(lambda: cluster.rate() == 300_000, "the run has set its quota")
            assert len(cluster.topics()) == 1
            code, printed, _ = run_cli(*restore)
            assert (code, "still under way" in printed) == (0, True)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert cluster.rate() == 300_000

        code, printed, _ = run_cli(*restore, "--dry-run")
        assert (code, cluster.rate(), len(cluster.topics())) == (0, 300_000, 1)
        code, printed, err = run_cli(*restore)

        assert code == 0, err
        assert "1 quota put back" in printed
        assert (cluster.rate(), cluster.topics()) == (5_000_000, ())
        code, _, err = run_cli(*restore)
        assert (code, err.startswith("note: nothing was left behind")) == (0, True)


def test_restore_leaves_alone_what_somebody_has_changed_since(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    arguments = ("run", scenario(tmp_path, client=unique_name, duration="300s"), "--yes")
    with closing(Cluster(kafka4, unique_name)) as cluster:
        with running(
            (*arguments, "--bootstrap-server", kafka4.bootstrap, "--journal-dir", str(journals)), tmp_path / "log"
        ) as process:
            await_true(lambda: cluster.rate() == 300_000, "the run has set its quota")
            process.send_signal(signal.SIGKILL)
            process.wait()
        cluster.set_rate(7e6)

        code, printed, err = run_cli("load-test", "restore", "--journal-dir", str(journals), "--output", "json")

        assert code == 0, err
        (run,) = json.loads(printed)["runs"]
        assert len(run["quotas_changed_by_others"]) == 1
        assert (cluster.rate(), cluster.topics()) == (7_000_000, ())
        cluster.set_rate(None)


def test_sigterm_ends_a_run_and_puts_everything_back(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    file = scenario(tmp_path, client=unique_name, duration="300s")
    log = tmp_path / "log"
    with (
        closing(Cluster(kafka4, unique_name)) as cluster,
        running(
            ("run", file, "--yes", "--bootstrap-server", kafka4.bootstrap, "--journal-dir", str(journals)), log
        ) as process,
    ):
        await_true(lambda: b"1 client for" in log.read_bytes(), "the load has begun")
        assert cluster.rate() == 300_000
        process.send_signal(signal.SIGTERM)
        code = process.wait(SOON_S)

        assert code == 130, log.read_text(encoding="utf-8")
        assert (cluster.rate(), cluster.topics()) == (None, ())
    assert list(journals.iterdir()) == []
    assert "error" not in log.read_text(encoding="utf-8")


def test_a_quota_changed_by_somebody_else_voids_the_verdict(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    journals, log = tmp_path / "journals", tmp_path / "log"
    file = scenario(tmp_path, client=unique_name, duration="6s")
    with (
        closing(Cluster(kafka4, unique_name)) as cluster,
        running(
            ("run", file, "--yes", "--bootstrap-server", kafka4.bootstrap, "--journal-dir", str(journals)), log
        ) as process,
    ):
        await_true(lambda: b"1 client for" in log.read_bytes(), "the load has begun")
        cluster.set_rate(9e6)
        code = process.wait(SOON_S)

        told = log.read_text(encoding="utf-8")
        assert code == 1, told
        assert f"the quotas changed during the run: {RATE} of {unique_name}: 300 kB/s became 9 MB/s" in told
        assert "was changed by somebody else during the run and is left as it is" in told
        assert cluster.rate() == 9_000_000
        assert cluster.topics() == ()
        cluster.set_rate(None)
    assert list(journals.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kip599-burst",), "error: kip599-burst needs a real broker"),
        (("kip599-burst", "--embedded"), "error: kip599-burst needs a real broker, and the embedded cluster is none"),
        (("kip13-default", "--embedded"), "error: the embedded cluster keeps no quotas"),
        (("kip219-timeout", "--scale", "0.5"), "error: kip219-timeout has nothing to scale"),
        (
            ("kip13-default", "--bootstrap-server", "127.0.0.1:1"),
            "error: kip13-default makes 2 topics and sets 2 quotas ",
        ),
        (("no-such",), "error: no scenario is called 'no-such'"),
        (("kip13-default", "--expect", "nonsense"), "error: "),
    ],
)
def test_what_can_not_be_run_is_refused_before_anything_is_started(arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run_cli("load-test", "run", *arguments)

    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert len(err.splitlines()) == 2


def test_a_load_on_topics_that_are_there_is_asked_about_though_it_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "there.yaml"
    file.write_text(SCENARIO.replace("{name: written}", "{name: written, existing: true}"), encoding="utf-8")
    code, out, err = run_cli("load-test", "run", str(file), "--bootstrap-server", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert err.startswith("error: ci changes nothing on 127.0.0.1:1, and puts its load on it"), err


SCENARIO = """
schema: kafka-quotas.scenario/1
name: ci
title: a run for CI
window: {samples: 1, seconds: 1}
duration: 6s
warmup: 1s
topics: [{name: written}]
entities: [{client-id: app, does: produce, topic: written, rate: 200rec/s}]
"""


@pytest.mark.measuring
def test_ci_gets_what_the_run_did(tmp_path: Path) -> None:
    file, report = tmp_path / "ci.yaml", tmp_path / "junit.xml"
    file.write_text(SCENARIO, encoding="utf-8")
    code, out, err = run_cli(
        *("load-test", "run", str(file), "--embedded", "--junit", str(report), "--output", "json"),
        *("--journal-dir", str(tmp_path / "journals")),
    )

    assert (code, err.splitlines()[-1]) == (0, "PASS: 3 checks met")
    document = json.loads(out)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert len(cases) == len(document["judgements"])

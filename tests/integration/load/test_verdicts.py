"""What breaks a run or its target keeps the run from being met, and a busy machine does not.

Every run has the embedded cluster, with the daemon in front of it.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.brokers.java_process import free_port
from tests.support.load.lying_proxy import Lie, lying_proxy
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.cli.load_test import scenarios as load_run_command
from kafka_quotas.commands.load_test import target as load_target
from kafka_quotas.commands.testbed.daemon_process import RunningDaemon, running_daemon
from kafka_quotas.core.clock import Clock, SystemClock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.run.runner import RunProgress, Watcher

Sabotage = Callable[[], None]
WINDOW = ("--quota-window-num", "1", "--warmup", "1s")


class Bench:
    """Runs of `load-test produce` in which something is done at a share of the run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.daemon_pid = 0
        """The process id of the daemon of the run under way."""
        self.store_url = self.cluster = self.address = ""
        """The store of that daemon, the cluster behind it, and its own address."""
        self.lie: Lie | None = None
        """What the network does between the clients and the daemon."""
        self.lies = 10
        """How often it does so."""
        self._hides_quota = False
        self._others: list[subprocess.Popen[bytes]] = []
        monkeypatch.setattr(load_target, "running_daemon", self._noted_daemon)

    def run(
        self,
        *options: str,
        at: float = 0.5,
        sabotage: Sabotage = lambda: None,
        seconds: int = 4,
        scenario: Path | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The exit code and the result of a run after `sabotage` at the share `at` of it.

        Without a scenario it is a producer for `seconds`.
        """
        is_done = False

        def look(progress: RunProgress) -> None:
            nonlocal is_done
            if not is_done and progress.elapsed_s >= at * progress.total_s:
                is_done = True
                sabotage()

        @contextmanager
        def watching(_title: str) -> Iterator[Watcher]:
            yield look

        self._monkeypatch.setattr(load_run_command, "live_watcher", watching)
        self._monkeypatch.setenv("XDG_STATE_HOME", str(self._folder / "state"))
        code, out, err = run_cli(
            *(("load-test", "produce", "--duration", f"{seconds}s", *WINDOW) if scenario is None else ()),
            *(() if scenario is None else ("load-test", "run", str(scenario), "--experiment", "0s")),
            *("--embedded", "--through-daemon", "--output", "json", *options),
        )
        assert out, err
        assert is_done
        return code, json.loads(out)

    def set_quota(self, value: float | None) -> None:
        """Set the quota of the client `app` in the daemon's store, or remove it."""
        store_quotas(self.store_url, {Entity.of(client_id="app"): {"producer_byte_rate": value}})

    def hides_quota(self, value: float) -> None:
        """Give the daemon a store of its own with this quota, which the run does not see."""
        self.store_url = f"local:{self._folder / 'hidden.db'}"
        self.set_quota(value)
        self._hides_quota = True

    def restart_daemon(self, *more: str) -> None:
        """Kill the daemon, and start another at its address with the same store, without waiting for it."""
        self.signal_daemon(signal.SIGKILL)
        options = (*more, "--listen", self.address, "--upstream", self.cluster, "--store", self.store_url)
        command = [sys.executable, "-m", "kafka_quotas", "daemon", "run", *options]
        self._others.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def close(self) -> None:
        """End what was started in place of a daemon."""
        for process in self._others:
            process.kill()
            process.wait()

    def signal_daemon(self, number: int) -> None:
        """Send a signal to the daemon."""
        os.kill(self.daemon_pid, number)

    @contextmanager
    def _noted_daemon(self, **given: Any) -> Iterator[RunningDaemon]:
        with ExitStack() as stack:
            proxy = None
            if self.lie is not None:
                port = free_port()
                at_proxy, at_daemon = ("127.0.0.2", port), ("127.0.0.1", port)
                given["options"] += ["--advertised-host", at_proxy[0], "--broker-address", f"1={port}"]
                proxy = stack.enter_context(lying_proxy(self.lie, address=at_proxy, upstream=at_daemon, lies=self.lies))
            if self._hides_quota:
                given["store_url"] = self.store_url
            daemon = stack.enter_context(running_daemon(**given))
            daemon = replace(daemon, bootstrap=daemon.bootstrap.replace("127.0.0.2", "127.0.0.1"))
            self.daemon_pid, self.address = daemon.pid, daemon.bootstrap
            self.store_url, self.cluster = given["store_url"], given["upstream"]
            yield daemon
            assert proxy is None or proxy.lies_left == 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with closing(Bench(tmp_path, monkeypatch)) as bench:
        yield bench


def reasons(document: Mapping[str, Any], aspect: str, *, state: str) -> Sequence[str]:
    """The evidence of the judgements of an aspect that have this state."""
    return [each["evidence"] for each in document["judgements"] if (each["aspect"], each["state"]) == (aspect, state)]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_killed_daemon_voids_the_run(bench: Bench, share: float) -> None:
    code, document = bench.run(
        *("--rate", "100rec/s", "--set-quota", "1MB/s", "--no-read-back"),
        at=share,
        sabotage=lambda: bench.signal_daemon(signal.SIGKILL),
    )

    assert (code, document["state"]) == (1, "void")
    (reason,) = reasons(document, "run", state="void")
    assert "did not answer any more from" in reason


@pytest.mark.measuring
def test_a_planned_restart_of_the_daemon_is_part_of_the_run(bench: Bench, tmp_path: Path) -> None:
    file, at_broker = tmp_path / "scenario.yaml", ("--broker-address", f"1={free_port()}")
    file.write_text(
        f"""
schema: kafka-quotas.scenario/1
name: restarted
title: a daemon that is restarted loses no records
window: {{samples: 1, seconds: 1}}
duration: 14s
warmup: 1s
topics: [{{name: written}}]
daemon: {{options: ["{at_broker[0]}", "{at_broker[1]}"]}}
restarts: [{{server: "1", at: 1s, within: 13s}}]
entities:
  - {{client-id: app, does: produce, topic: written, rate: 20rec/s, judged: false,
     properties: {{enable.idempotence: "true"}}}}
""",
        encoding="utf-8",
    )
    code, document = bench.run(at=0.15, sabotage=lambda: bench.restart_daemon(*at_broker), scenario=file)

    assert (code, document["state"]) == (0, "met"), document["judgements"]
    assert all(each.endswith("as planned") for each in reasons(document, "run", state="met"))
    assert document["restarts"]


def test_a_clock_that_is_set_voids_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    step_ms = 0

    class SteppedClock(Clock):
        def now_ms(self) -> int:
            return SystemClock().now_ms() + step_ms

    def step() -> None:
        nonlocal step_ms
        step_ms = 3_000

    monkeypatch.setattr(load_run_command, "SystemClock", SteppedClock)
    code, document = bench.run("--rate", "100rec/s", "--no-read-back", sabotage=step, seconds=2)

    assert (code, document["state"]) == (1, "void")
    (reason,) = reasons(document, "run", state="void")
    assert reason.startswith("the clock was set forward by 3.0 s after")


def test_a_daemon_that_stalls_for_the_last_seconds_leaves_its_clients_unanswered(bench: Bench) -> None:
    """The watch is patient for 8 s: silence within that is for the books and the rate to find."""
    code, document = bench.run(
        *("--rate", "100rec/s", "--no-read-back", "--client", "raw"),
        at=0.35,
        sabotage=lambda: bench.signal_daemon(signal.SIGSTOP),
        seconds=6,
    )

    assert (code, document["state"]) != (0, "met")
    (entity,) = document["entities"]
    books = entity["books"]
    assert books["due"] == books["acknowledged"] + books["failed"] + books["unsent"] + books["unanswered"]
    assert books["due"] >= 700
    assert reasons(document, "books", state="not met")
    assert reasons(document, "rate", state="not met")
    assert entity["latency"]["response"]["censored"] > 200


def stall_clients(pause_s: float) -> None:
    """Stop this process, which the clients are part of, for a time."""
    goes_on = f"import os, signal, time; time.sleep({pause_s}); os.kill({os.getpid()}, signal.SIGCONT)"
    with subprocess.Popen([sys.executable, "-c", goes_on], stdin=subprocess.DEVNULL):
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.measuring
@pytest.mark.parametrize(("client", "rate"), [("raw", "4x-quota"), ("librdkafka", "max")], ids=str)
def test_clients_that_stall_are_no_quota_that_gives_too_little(bench: Bench, client: str, rate: str) -> None:
    code, document = bench.run(
        *("--entity", "/app", "--client", client, "--rate", rate, "--set-quota", "300kB/s", "--no-read-back"),
        sabotage=lambda: stall_clients(4.0),
        seconds=8,
    )

    assert (code, document["state"]) == (1, "void"), document["judgements"]


@pytest.mark.measuring
@pytest.mark.parametrize(
    ("rate", "expect", "state", "evidence"),
    [
        ("2x-quota", "throttle.count > 0", "met", "without the quotas it fails: "),
        ("50rec/s", "achieved/offered > 0.5", "not met", "all that was judged holds without the quotas as well"),
    ],
)
def test_what_holds_without_the_quotas_as_well_is_no_success(
    rate: str, expect: str, state: str, evidence: str, tmp_path: Path
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(
        f"""
schema: kafka-quotas.scenario/1
name: held
title: a client is held to its quota
window: {{samples: 1, seconds: 1}}
duration: 3s
solo: 1s
topics: [{{name: written}}]
quotas: [{{entity: {{client-id: app}}, set: {{producer_byte_rate: 300kB/s}}}}]
entities: [{{client-id: app, does: produce, topic: written, rate: {rate}}}]
expect: ["{expect}"]
""",
        encoding="utf-8",
    )
    code, out, err = run_cli(
        *("load-test", "run", str(file), "--experiment", "10s", "--journal-dir", str(tmp_path), "--output", "json")
    )

    document = json.loads(out)
    (found,) = reasons(document, "control run", state=state)
    assert found.startswith(evidence), err
    assert (code == 0) is (document["state"] == "met")
    assert code == 1 or state == "met"


def test_a_quota_that_is_removed_during_the_run_voids_it(bench: Bench) -> None:
    code, document = bench.run(
        *("--entity", "/app", "--rate", "2x-quota", "--set-quota", "1MB/s", "--no-read-back"),
        sabotage=lambda: bench.set_quota(None),
        seconds=3,
    )

    assert (code, document["state"]) == (1, "void")
    assert any(each.startswith("the quotas changed during the run") for each in reasons(document, "run", state="void"))


@pytest.mark.measuring
@pytest.mark.parametrize("factor", [2.0, 0.5], ids=["doubled", "halved"])
def test_a_quota_that_the_daemon_alone_changes_during_the_run_is_not_held(bench: Bench, factor: float) -> None:
    """The store of the run still says 1 MB/s, so that the watch sees no change: the rate has to."""
    bench.hides_quota(1e6)
    code, document = bench.run(
        *("--entity", "/app", "--rate", "4x-quota", "--set-quota", "1MB/s", "--no-read-back"),
        at=0.3,
        sabotage=lambda: bench.set_quota(1e6 * factor),
        seconds=8,
    )

    assert (code, document["state"]) == (1, "not met"), document["judgements"]
    assert reasons(document, "rate", state="not met")
    assert not reasons(document, "run", state="void")


@pytest.mark.parametrize(
    ("lie", "found"), [(Lie.LOSE, r"[1-9]\d* lost, 0 duplicated$"), (Lie.DOUBLE, r" 0 lost, [1-9]\d* duplicated$")]
)
def test_records_that_the_network_loses_or_doubles_are_found(bench: Bench, lie: Lie, found: str) -> None:
    bench.lie = lie
    code, document = bench.run("--entity", "/app", "--rate", "50rec/s", "--client", "raw", seconds=3)

    assert code == 1, document["judgements"]
    (evidence,) = reasons(document, "delivery", state="not met")
    assert re.search(found, evidence), evidence


def test_one_lost_record_of_a_client_that_its_quota_holds_back_is_found(bench: Bench, tmp_path: Path) -> None:
    """Many records have no answer at the end, and the one that the network lost in between is none of them."""
    bench.lie, bench.lies = Lie.LOSE, 1
    file = tmp_path / "small.yaml"
    file.write_text(
        """
schema: kafka-quotas.scenario/1
name: small
title: requests of one record
window: {samples: 1, seconds: 1}
duration: 6s
warmup: 1s
topics: [{name: written}]
quotas: [{entity: {client-id: app}, set: {producer_byte_rate: 200kB/s}}]
entities: [{client-id: app, does: produce, topic: written, client: raw, rate: 4x-quota, batch: 1KiB}]
""",
        encoding="utf-8",
    )
    code, document = bench.run(scenario=file)

    assert code == 1, document["judgements"]
    assert document["entities"][0]["books"]["unanswered"]
    (evidence,) = reasons(document, "delivery", state="not met")
    assert re.search(r" 1 lost, 0 duplicated$", evidence), evidence


@pytest.mark.measuring
def test_a_run_that_nobody_disturbs_is_met(bench: Bench) -> None:
    code, document = bench.run("--entity", "/app", "--rate", "100rec/s", "--set-quota", "1MB/s", seconds=4)

    assert (code, document["state"]) == (0, "met"), document["judgements"]
    assert {each["state"] for each in document["judgements"]} == {"met"}


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep every core of the machine busy with another process, for a minute and a half at most."""
    burner = "import time\nend = time.monotonic() + 90\nwhile time.monotonic() < end: pass"
    burners = [
        subprocess.Popen([sys.executable, "-c", burner], stdin=subprocess.DEVNULL) for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


@pytest.mark.parametrize(("client", "rate"), [("raw", "4x-quota"), ("librdkafka", "max")], ids=str)
def test_a_run_that_nobody_disturbs_is_never_not_met_on_a_busy_machine(bench: Bench, client: str, rate: str) -> None:
    """It is met as a rule, and where the machine leaves too little for a verdict, it is void."""
    options = ("--entity", "/app", "--client", client, "--rate", rate, "--set-quota", "300kB/s")
    with busy_machine():
        code, document = bench.run(*options, seconds=8)

    assert document["state"] in ("met", "void"), (document["cpu"], document["judgements"])
    assert code == (0 if document["state"] == "met" else 1)
    assert document["entities"][0]["delivery"]["lost"] == 0
    assert document["state"] == "met" or document["cpu"]["late_ms"] > 1  # of an idle machine no thread waits as long

"""When a run ends before its time: nothing is acknowledged, or it is interrupted."""

import gc
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.cluster_check import ClusterUnreachableError, LoadRefusedError
from kafka_quotas.loadtest.clients.engine import ClientEngine, RunClock
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run import runner
from kafka_quotas.loadtest.run.runner import LoadRun

CLOCK = RunClock(start_ns=0, measure_from_ns=0, end_ns=10**11)


def load(client_id: str, *, start_s: float = 0.0, stop_s: float | None = None) -> ClientLoad:
    name = ClientName(user=None, client_id=client_id)
    return ClientLoad(name=name, workload=Workload.PRODUCE, topic="t", start_s=start_s, stop_s=stop_s)


def silent_run(*loads: ClientLoad) -> LoadRun:
    """A run whose clients have neither an acknowledgement nor a throttle time."""
    plan = LoadPlan(bootstrap="127.0.0.1:1", entities=loads, duration_s=100, warmup_s=0, window=QuotaWindow())
    clients = [SimpleNamespace(entity=each, recorder=CLOCK.recorder(plan), trouble=None) for each in plan.entities]
    engine = cast("ClientEngine", SimpleNamespace(clients=clients))
    return LoadRun(plan=plan, instants=CLOCK, engines=(engine,), clock=VirtualClock())


def silence(loads: Sequence[ClientLoad], elapsed_s: float) -> Exception | None:
    return silent_run(*loads).silence(elapsed_s)


def test_a_silent_target_ends_the_run() -> None:
    assert silence([load("a")], 19.9) is None
    assert isinstance(silence([load("a")], 20.0), ClusterUnreachableError)


def test_silence_counts_from_the_start_of_a_client() -> None:
    late = load("late", start_s=30.0)

    assert silence([late], 49.9) is None
    assert isinstance(silence([late], 50.0), ClusterUnreachableError)


def test_a_client_that_has_left_does_not_wait_any_longer() -> None:
    brief, late = load("brief", stop_s=5.0), load("late", start_s=30.0)

    assert silence([brief, late], 40.0) is None
    assert isinstance(silence([brief, late], 50.0), ClusterUnreachableError)


def test_the_load_begins_when_all_clients_are_made_and_had_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients take seconds to make, in which arrivals were due and nobody sent them."""
    head_start_ns = 300_000_000
    made_ns: list[int] = []
    began_ns: list[int] = []
    postponed_ns: list[int] = []
    frozen: list[int] = []

    def refuse(_stop: threading.Event) -> None:
        began_ns.append(time.monotonic_ns())
        frozen.append(gc.get_freeze_count())
        raise LoadRefusedError("enough")

    def engines(*_: object) -> tuple[ClientEngine, ...]:
        made_ns.append(time.monotonic_ns())
        client = SimpleNamespace(
            error=None, entity=plan.entities[0], postpone=postponed_ns.append, recorder=CLOCK.recorder(plan)
        )
        return (cast("ClientEngine", SimpleNamespace(clients=[client], run=refuse, head_start_ns=head_start_ns)),)

    plan = silent_run(load("app")).plan
    monkeypatch.setattr(runner, "_look_at_topics", lambda _plan: {})
    monkeypatch.setattr(runner, "_engines", engines)

    with pytest.raises(LoadRefusedError):
        runner.run_load(plan, clock=VirtualClock())

    (start_ns,) = postponed_ns
    assert start_ns >= made_ns[0] + head_start_ns
    assert began_ns[0] >= start_ns - head_start_ns
    assert frozen[0] > 0, "the collector looks through all clients while they send"
    assert gc.get_freeze_count() == 0


def test_an_interrupt_while_clients_start_ends_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise KeyboardInterrupt
        started.append(thread)
        start(thread)

    run = silent_run(load("first"))
    engine = cast("ClientEngine", SimpleNamespace(clients=[], run=threading.Event.wait, head_start_ns=0))
    two = LoadRun(plan=run.plan, instants=CLOCK, engines=(engine, engine), clock=VirtualClock())
    monkeypatch.setattr(threading.Thread, "start", start_one)

    two.drive(None)

    assert two.interrupted
    assert not started[0].is_alive()

"""Quota steps and daemon restarts during a load: each once, when it is due, steps restored at the end."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from kafka_quotas.commands.load_test.events import DaemonRestarts, QuotaSteps
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.scenario.model import QuotaStep

ALICE = Entity.of(user="alice")


def step(at_s: float, rate: float) -> QuotaStep:
    return QuotaStep(at_s=at_s, entity=ALICE, values=(("producer_byte_rate", rate),))


class Store:
    """Remembers what is stored and restored."""

    def __init__(self) -> None:
        self.log: list[tuple[str, float | None]] = []

    @contextmanager
    def changed(self, wanted: Sequence[tuple[Entity, Mapping[str, float | None]]]) -> Iterator[None]:
        (_, values), *_ = wanted
        self.log.append(("set", values["producer_byte_rate"]))
        try:
            yield
        finally:
            self.log.append(("restored", values["producer_byte_rate"]))


def test_a_step_is_made_once_and_not_before_its_time() -> None:
    store = Store()
    with QuotaSteps([step(20, 2e6), step(10, 1e6)], warmup_s=3, changed=store.changed) as steps:
        steps.look(12.9)
        assert store.log == []
        steps.look(13.1)
        steps.look(13.4)
        assert store.log == [("set", 1e6)]
        steps.look(40)
    assert store.log == [("set", 1e6), ("set", 2e6), ("restored", 2e6), ("restored", 1e6)]


def test_steps_are_restored_where_the_run_fails() -> None:
    store = Store()
    steps = QuotaSteps([step(1, 1e6)], warmup_s=0, changed=store.changed)
    steps.look(2)
    steps.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert store.log == [("set", 1e6), ("restored", 1e6)]


def test_each_daemon_is_restarted_once_it_is_due_and_the_one_before_is_back() -> None:
    begun: list[str] = []
    is_back, is_begun = threading.Event(), threading.Event()

    def first() -> None:
        begun.append("first")
        is_begun.set()
        assert is_back.wait(30)
        begun.append("first is back")

    with DaemonRestarts([5.0, 4.0], [first, lambda: begun.append("second")], warmup_s=3.0) as restarts:
        restarts.look(6.9)
        assert begun == []
        restarts.look(7.1)
        restarts.look(8.1)
        assert is_begun.wait(30)
        assert begun == ["first"]
        is_back.set()

    assert begun[:2] == ["first", "first is back"]


def test_the_error_of_a_restart_ends_the_run() -> None:
    def broken() -> None:
        raise OSError("does not start")

    def look_on(restarts: DaemonRestarts) -> None:
        while True:
            restarts.look(1.0)

    with DaemonRestarts([1.0], [broken], warmup_s=0.0) as restarts, pytest.raises(OSError, match="does not start"):
        look_on(restarts)

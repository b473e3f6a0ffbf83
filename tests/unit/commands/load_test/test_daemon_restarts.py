"""Daemons are restarted one after the other, each when it is due."""

import threading

import pytest

from kafka_quotas.commands.load_test.events import DaemonRestarts


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

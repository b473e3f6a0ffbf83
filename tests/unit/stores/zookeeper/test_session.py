"""Reads that are sent to ZooKeeper together."""

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from kafka_quotas.stores.zookeeper.session import _Together


class Pending:
    """A read that takes `took_s` on the virtual clock, and may find no znode."""

    def __init__(self, clock: list[float], took_s: float, *, exists: bool = True) -> None:
        self._clock = clock
        self._took_s = took_s
        self._exists = exists

    def get(self, *, timeout: float) -> str:
        self._clock[0] += min(timeout, self._took_s)
        if self._took_s > timeout:
            raise TimeoutError
        if not self._exists:
            raise NoNodeError
        return "data"


def together(clock: list[float], *reads: Pending) -> Any:
    client = SimpleNamespace(read=lambda path: reads[int(path)])
    return _Together("read", [str(number) for number in range(len(reads))], client, monotonic_s=lambda: clock[0])


def test_answers_come_in_order_and_a_missing_znode_is_none() -> None:
    clock = [5.0]
    reads = (Pending(clock, 1), Pending(clock, 1, exists=False), Pending(clock, 1))
    assert together(clock, *reads).get(timeout=3) == ["data", None, "data"]


def test_the_timeout_is_that_of_all_reads_together() -> None:
    clock = [5.0]
    with pytest.raises(TimeoutError):
        together(clock, Pending(clock, 2), Pending(clock, 2), Pending(clock, 2)).get(timeout=3)
    assert clock == [8.0]

"""Clients of librdkafka: incompressible records, consumers that start no earlier than planned, what is unanswered."""

import threading
import time
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients import librdkafka
from kafka_quotas.loadtest.clients.cluster_check import PartitionRange
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.librdkafka import ConsumerLoad, ProducerLoad, padding
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

CLIENT = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.PRODUCE, topic="t")


@pytest.mark.parametrize(("compression", "smallest", "largest"), [("none", 10_000, 10_100), ("gzip", 0, 300)])
def test_records_shrink_only_where_they_are_to_be_compressed(compression: str, smallest: int, largest: int) -> None:
    content = padding(replace(CLIENT, compression=compression), size=10_001)

    assert len(content) == 10_001
    assert smallest < len(zlib.compress(content)) < largest


@pytest.mark.parametrize(("group", "call"), [(None, "assign"), ("readers", "subscribe")])
def test_a_consumer_takes_partitions_only_when_it_starts(
    monkeypatch: pytest.MonkeyPatch, group: str | None, call: str
) -> None:
    """librdkafka fetches from then on: what it had read before the load was charged and not judged."""
    calls: list[str] = []
    library = SimpleNamespace(
        **{name: lambda *_, name=name: calls.append(name) for name in ("assign", "subscribe", "close")}
    )
    monkeypatch.setattr(librdkafka, "open_client", lambda *_: library)
    load = replace(CLIENT, workload=Workload.CONSUME, group=group)

    client = ConsumerLoad(plan_of(load), load, ended_clock(), (PartitionRange(partition=0, low=0, high=9),))
    assert calls == []

    client.run(threading.Event())
    assert calls == [call, "close"]


class EventfulLibrary:
    """A producer of librdkafka that holds records, and whose length counts events that wait for a poll as well."""

    def __init__(self, *, held: int, arriving: list[int]) -> None:
        self.held = held
        self.waiting = 0
        self.arriving = arriving  # the events that come right after each poll
        self.flush = self.purge = lambda *_: 0

    def __len__(self) -> int:
        return self.held + self.waiting

    def poll(self, _wait_s: float) -> int:
        served, self.waiting = self.waiting, self.arriving.pop(0) if self.arriving else 0
        return served


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("arriving", [[], [1], [1, 2], [0, 1]])
def test_an_event_at_the_end_is_not_an_unfinished_record(
    monkeypatch: pytest.MonkeyPatch, held: int, arriving: list[int]
) -> None:
    library = EventfulLibrary(held=held, arriving=arriving)
    library.waiting = 1
    monkeypatch.setattr(librdkafka, "open_client", lambda *_: library)
    client = ProducerLoad(plan_of(CLIENT), CLIENT, ended_clock())
    client.recorder.sent = 500

    client.run(threading.Event())

    assert (client.recorder.acked, client.unfinished) == (500 - held, held)


def plan_of(load: ClientLoad) -> LoadPlan:
    return LoadPlan(bootstrap="127.0.0.1:1", entities=(load,), duration_s=1, warmup_s=0, window=QuotaWindow())


def ended_clock() -> RunClock:
    """The clock of a run that is over when it begins."""
    now_ns = time.monotonic_ns()
    return RunClock(start_ns=now_ns, measure_from_ns=now_ns, end_ns=now_ns)

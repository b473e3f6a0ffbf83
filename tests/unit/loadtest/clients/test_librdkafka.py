"""Clients of librdkafka: incompressible records, and consumers that start no earlier than planned."""

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
from kafka_quotas.loadtest.clients.librdkafka import ConsumerLoad, padding
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
    load = ClientLoad(name=ClientName(user=None, client_id="app"), workload=Workload.CONSUME, topic="t", group=group)
    plan = LoadPlan(bootstrap="127.0.0.1:1", entities=(load,), duration_s=1, warmup_s=0, window=QuotaWindow())
    over_ns = time.monotonic_ns()
    clock = RunClock(start_ns=over_ns, measure_from_ns=over_ns, end_ns=over_ns)

    client = ConsumerLoad(plan, load, clock, (PartitionRange(partition=0, low=0, high=9),))
    assert calls == []

    client.run(threading.Event())
    assert calls == [call, "close"]

"""A consumer neither fetches nor joins its group before its start."""

import threading
import time
from types import SimpleNamespace

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients import librdkafka
from kafka_quotas.loadtest.clients.cluster_check import PartitionRange
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.librdkafka import ConsumerLoad
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload


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

"""Raw clients of a load test, run for a moment against an address, and a broker in memory for them to talk to."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from tests.support.brokers.fake_broker import FakeBroker, fake_broker, receive_frame
from tests.support.brokers.topic_broker import TopicBroker

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.cluster_check import TopicView
from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock
from kafka_quotas.loadtest.clients.raw.engine import RawEngine
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload

RUN_ID = 0xFEDC_BA98_7654_3210


def raw(workload: Workload, *, client_id: str | None = "raw", rate: float | None = None, **more: Any) -> ClientLoad:
    """A raw client that does this, `rate` times per second."""
    return ClientLoad(
        name=ClientName(user=None, client_id=client_id),
        workload=workload,
        client=ClientKind.RAW,
        arrivals_per_second=None if rate is None else Fraction(rate),
        **more,
    )


def run_raw(
    bootstrap: str,
    entities: Sequence[ClientLoad],
    *,
    seconds: float,
    views: Mapping[tuple[str, Workload], TopicView] | None = None,
    properties: Mapping[str, str] | None = None,
    until: Callable[[], bool] | None = None,
) -> Sequence[LoadClient]:
    """The clients after their run, which ends early once `until` holds.

    What hindered one is in its `error`.
    """
    plan = LoadPlan(
        bootstrap=bootstrap,
        entities=tuple(entities),
        duration_s=seconds,
        warmup_s=0.0,
        window=QuotaWindow(samples=3, window_s=1),
        run_id=RUN_ID,
        properties=tuple((properties or {}).items()),
    )
    start_ns = time.monotonic_ns()
    clock = RunClock(start_ns=start_ns, measure_from_ns=start_ns, end_ns=start_ns + int(seconds * 1e9))
    engine = RawEngine(plan, plan.entities, clock, views or {})
    stop = threading.Event()
    thread = threading.Thread(target=engine.run, args=(stop,))
    thread.start()
    while thread.is_alive() and not (until is not None and until()):
        thread.join(0.02)
    stop.set()
    thread.join()
    for client in engine.clients:
        client.recorder.fold()
    return engine.clients


@contextmanager
def talking(broker: TopicBroker, *, ends: Callable[[int], bool] = lambda _count: False) -> Iterator[FakeBroker]:
    """An address at which the broker in memory answers.

    `ends` says by the requests so far to end a connection.
    """
    count = 0
    lock = threading.Lock()

    def serve(connection: socket.socket) -> None:
        nonlocal count
        while True:
            frame = receive_frame(connection)
            with lock:
                count += 1
                if ends(count):
                    return
                answer = broker.answers(frame)
            connection.sendall(answer)

    with fake_broker(serve) as listening:
        broker.brokers.append((broker.leader, "127.0.0.1", listening.port))
        yield listening

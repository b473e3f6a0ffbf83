"""The whole product in half a minute: a cluster, a store, the daemon, quotas, load, and the verdicts.

The quota window is 3 x 1 s instead of Kafka's 11 x 1 s, so that enough throttle cycles fit into the time. Throttle
times are judged by the daemon's own event log, since acknowledgements reach a client late where the machine is busy.
A load in which clients only got too little runs once more: a lack of CPU may be why, and no quota is.
"""

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, Protocol

from kafka_quotas import loadtest
from kafka_quotas.commands.quotas.alter import AlterResult, alter
from kafka_quotas.commands.quotas.describe import EffectiveResult, effective
from kafka_quotas.commands.testbed.daemon_process import running_daemon, work_folder
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaKey
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.stores import Store, open_store

WINDOW: Final = QuotaWindow(samples=3, window_s=1)
DURATION_S: Final = 24.0
RECORD_SIZE: Final = 1024
_PRODUCED_TOPIC: Final = "orders"
_CONSUMED_TOPIC: Final = "history"
_FILL_RECORDS: Final = 16_000
_BUSY: Final = "clients got too little while the machine was too busy, see the warnings"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoClient:
    """A client of the demo."""

    client_id: str
    workload: loadtest.Workload
    quota: int | None
    """In bytes/s, None for no quota."""
    offers: int | None
    """Its offered load in bytes/s, None for as much as it can send."""

    @property
    def key(self) -> QuotaKey:
        """The quota key that concerns it."""
        return PRODUCER_BYTE_RATE if self.workload is loadtest.Workload.PRODUCE else CONSUMER_BYTE_RATE


CLIENTS: Final = (
    DemoClient(client_id="greedy", workload=loadtest.Workload.PRODUCE, quota=2_000_000, offers=None),
    DemoClient(client_id="modest", workload=loadtest.Workload.PRODUCE, quota=4_000_000, offers=1_500_000),
    DemoClient(client_id="unlimited", workload=loadtest.Workload.PRODUCE, quota=None, offers=8_000_000),
    DemoClient(client_id="reader", workload=loadtest.Workload.CONSUME, quota=3_000_000, offers=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTestBed:
    """The running servers of the demo: the addresses of cluster and daemon, and the store."""

    cluster: str
    daemon: str
    store_url: str
    window: QuotaWindow


class DemoObserver(Protocol):
    """An observer of the demo's progress."""

    def quota_is_set(self, client: DemoClient, result: AlterResult) -> None:
        """Receive a quota that the demo has stored."""

    def servers_run(self, servers: DemoTestBed) -> None:
        """Receive the addresses of the servers once they all run."""

    def applies(self, result: EffectiveResult) -> None:
        """Receive the effective quotas of the demo's clients."""

    def load_runs(self, progress: loadtest.RunProgress) -> None:
        """Receive the progress of the load, several times a second."""

    def load_repeats(self) -> None:
        """Receive the news that the load runs once more."""


def demo(observer: DemoObserver, *, clock: Clock) -> loadtest.LoadResult:
    """Run the demo and return the result of every client, with the verdicts.

    Everything that it started ends before it returns.

    Raises:
        DaemonStartError: The daemon does not start.
        KafkaQuotasError: The load can't run, see `run_load`.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        cluster = stack.enter_context(loadtest.EmbeddedCluster())
        cluster.make_topic(_PRODUCED_TOPIC)
        cluster.fill(_CONSUMED_TOPIC, records=_FILL_RECORDS, record_size=RECORD_SIZE)
        store = open_store(f"local:{folder / 'quotas.db'}")
        stack.callback(store.close)
        _set_quotas(store, observer)
        result = _measured(cluster, store, folder / "first", observer, clock)
        if not result.interrupted and is_shortfall(result):
            observer.load_repeats()
            result = _measured(cluster, store, folder / "second", observer, clock)
        if not result.interrupted and is_shortfall(result) and result.warnings:
            return loadtest.judge_run(result, loadtest.Evidence(outages=(_BUSY,)))
        return result


def is_shortfall(result: loadtest.LoadResult) -> bool:
    """Return whether all that failed is that clients got too little, or that the run was void."""
    failed = [each for each in result.judgements if not each.ok]
    short = {each.name.label for each in result.entities if _fell_short(each)}
    return bool(failed) and all(
        each.aspect is loadtest.Aspect.RUN
        or (
            each.aspect in (loadtest.Aspect.RATE, loadtest.Aspect.BOOKS)
            and each.state is loadtest.State.NOT_MET
            and each.entity in short
        )
        for each in failed
    )


def _fell_short(client: loadtest.ClientResult) -> bool:
    """Return whether a client got no more than its quota, and was throttled for nothing else."""
    verdict = client.verdict
    if verdict.kind is loadtest.ObservationKind.GREEDY:
        return verdict.ratio is not None and verdict.upper is not None and verdict.ratio <= verdict.upper
    return not client.throttle.count


def _measured(
    cluster: loadtest.EmbeddedCluster, store: Store, folder: Path, observer: DemoObserver, clock: Clock
) -> loadtest.LoadResult:
    """Run the load through a daemon of its own, and judge it by that daemon's event log as well."""
    folder.mkdir()
    events = folder / "events"
    options = ("--event-log", str(events), "--event-log-rotate", "3600")
    with running_daemon(
        upstream=cluster.bootstrap, store_url=store.url, window=WINDOW, folder=folder, options=options
    ) as daemon:
        observer.servers_run(
            DemoTestBed(cluster=cluster.bootstrap, daemon=daemon.bootstrap, store_url=store.url, window=WINDOW)
        )
        observer.applies(effective(store, clients=[QuotaClient(client_id=client.client_id) for client in CLIENTS]))
        plan = _plan(daemon.bootstrap)
        result = loadtest.run_load(plan, clock=clock, watcher=observer.load_runs)
    ended_ms = result.started_ms + round(result.elapsed_s * 1000)
    charges = loadtest.logged_charges(events, plan.entities, started_ms=result.started_ms, ended_ms=ended_ms)
    return loadtest.judge_run(result, loadtest.Evidence(charges=charges))


def _set_quotas(store: Store, observer: DemoObserver) -> None:
    for client in CLIENTS:
        if client.quota is not None:
            entity = Entity.of(client_id=client.client_id)
            observer.quota_is_set(client, alter(store, entity=entity, changes={client.key.name: float(client.quota)}))


def _plan(bootstrap: str) -> loadtest.LoadPlan:
    return loadtest.LoadPlan(
        bootstrap=bootstrap,
        entities=tuple(_load(client) for client in CLIENTS),
        duration_s=DURATION_S,
        warmup_s=float(WINDOW.samples * WINDOW.window_s),
        window=WINDOW,
        run_id=secrets.randbits(64),
        enforcers=1,  # one daemon keeps the quotas, however many brokers are behind it
    )


def _load(client: DemoClient) -> loadtest.ClientLoad:
    return loadtest.ClientLoad(
        name=loadtest.ClientName(user=None, client_id=client.client_id),
        workload=client.workload,
        topic=_PRODUCED_TOPIC if client.workload is loadtest.Workload.PRODUCE else _CONSUMED_TOPIC,
        arrivals_per_second=None if client.offers is None else Fraction(client.offers, RECORD_SIZE),
        quota=None if client.quota is None else float(client.quota),
        record_size=RECORD_SIZE,
        batch_bytes=loadtest.request_size(client.quota, window_s=WINDOW.samples * WINDOW.window_s),
    )

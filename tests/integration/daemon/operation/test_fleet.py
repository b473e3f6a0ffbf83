"""Daemons of a fleet hold one limit of one cluster together, as one daemon beside them in the same run does."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.telemetry.status import FleetRow
from kafka_quotas.loadtest.plan.client_verdict import judge

QUOTA = 500_000.0
WINDOW_OPTIONS = ("--quota-window-num", "3", "--quota-window-size-seconds", "1")
DURATION_S = 41.0
Acks: TypeAlias = list[tuple[float, int]]


@pytest.fixture
def daemons(kafka4_cluster: Kafka, tmp_path: Path, unique_name: str) -> Iterator[list[DaemonProcess]]:
    """Three daemons that are a fleet, two of them with workers, and one that is alone."""
    for client_id in (unique_name, f"{unique_name}-control"):
        set_quota(tmp_path, Entity.of(client_id=client_id), producer_byte_rate=QUOTA)
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:

        def started(number: int) -> DaemonProcess:
            folder = tmp_path / str(number)
            folder.mkdir()
            fleet = ("--fleet", f"kafka://{kafka4_cluster.bootstrap}/fleet-{unique_name}") if number < 3 else ()
            workers = ("--workers", "2" if number < 2 else "1")
            store = f"local:{tmp_path / 'quotas.db'}"
            options = ("--scope", "cluster", *fleet, *workers, *WINDOW_OPTIONS)
            return stack.enter_context(
                running_daemon(folder, upstream=kafka4_cluster.bootstrap, store=store, options=options)
            )

        yield list(pool.map(started, range(4)))


def members(daemon: DaemonProcess) -> FleetRow:
    fleet = daemon.status().fleet
    assert fleet is not None
    return fleet


def produced(
    homes: Sequence[DaemonProcess], client_id: str, pool: ThreadPoolExecutor, told_ms: list[float]
) -> list[Future[Acks]]:
    """Start a producer with one client-id at each of some daemons, and collect the throttle times they are told."""
    properties = {"batch.size": "20000", "linger.ms": "1", "max.in.flight": "1"}
    options = {"duration_s": DURATION_S, "properties": properties, "throttled_ms": told_ms}
    return [pool.submit(acknowledgements, home.bootstrap, client_id, client_id, **options) for home in homes]


def fairness(producers: list[Acks]) -> float:
    """Return Jain's index of what producers got."""
    sent = [sum(size for _, size in each) for each in producers]
    return sum(sent) ** 2 / (len(sent) * sum(each * each for each in sent))


@pytest.mark.measuring
@pytest.mark.parametrize(
    "killed", [pytest.param(False, id="all", marks=pytest.mark.long), pytest.param(True, id="one-killed-before")]
)
def test_daemons_of_a_fleet_hold_one_limit_as_one_daemon_does(
    daemons: list[DaemonProcess], unique_name: str, killed: bool
) -> None:
    *fleet, alone = daemons
    for daemon in fleet:
        daemon.wait_until(lambda status: status.fleet is not None and status.fleet.members == 3)
    homes = [fleet[number] for number in (0, 0, 0, 1, 1, 2)]
    if killed:
        fleet.pop().kill()
        homes[-1] = fleet[1]
        for daemon in fleet:
            daemon.wait_until(lambda status: status.fleet is not None and status.fleet.members == 2)
        assert fleet[0].lines("fleet: a member is lost")
    told_ms: list[float] = []
    told_control_ms: list[float] = []
    with ThreadPoolExecutor(12) as pool:
        running = produced(homes, unique_name, pool, told_ms)
        control = [each.result() for each in produced([alone] * 6, f"{unique_name}-control", pool, told_control_ms)]
        acks = [each.result() for each in running]
    # By whole throttle cycles of a second or two, for a fixed span of time would cut some off at either end.
    theirs, ours = (
        judge(sorted(ack for each in producers for ack in each), quota=QUOTA, window_ms=3000)
        for producers in (control, acks)
    )
    # Neither is 1: requests that arrive together are all let through, at a broker as well.
    assert ours.ratio == pytest.approx(theirs.ratio, rel=0.06), (ours.evidence, theirs.evidence)
    assert fairness(acks) > min(0.95, fairness(control) - 0.02)
    assert all(members(each).shared_buckets == 1 for each in fleet)
    # The same records are told the same times, whichever member answers.
    assert sum(told_ms) / sum(map(len, acks)) == pytest.approx(
        sum(told_control_ms) / sum(map(len, control)), rel=0.15
    ), (len(told_ms), len(told_control_ms))

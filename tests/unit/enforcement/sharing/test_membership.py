"""However much comes over a fleet's topic, little of it waits in memory, and clients are served between its slices."""

import asyncio
import tracemalloc
from itertools import pairwise

from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.processes.awaiting import await_true

from kafka_quotas.enforcement.config.address import parse_topic
from kafka_quotas.enforcement.config.settings import FleetSettings
from kafka_quotas.enforcement.sharing.membership import MAX_INBOX_BYTES, SLICE_BYTES, FleetMembership, FleetTopic
from kafka_quotas.enforcement.sharing.report import MAX_REPORT_BYTES, Refusal

NOW_MS = 1_000_000


def member() -> FleetMembership:
    """A member that has not started."""
    settings = FleetSettings(target=parse_topic("kafka://127.0.0.1:1/fleet"))
    return FleetMembership(proxy_quotas(clock=VirtualClock(NOW_MS)), settings, waiting=lambda _: {})


def test_a_flood_takes_little_memory_and_is_taken_up_in_slices() -> None:
    async def flood() -> tuple[FleetMembership, list[int], int]:
        fleet = member()
        tracemalloc.start()
        for offset in range(500):
            fleet._deliver(bytes(2 * MAX_REPORT_BYTES), offset)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        taken = [0]
        for _ in range(50):
            await asyncio.sleep(0)
            taken.append(fleet.sharing.received_bytes)
        assert not fleet._inbox
        return fleet, taken, kept

    fleet, taken, kept = asyncio.run(flood())
    assert kept < 2 * MAX_INBOX_BYTES
    refused = fleet.sharing.checks.refused
    assert refused[Refusal.TOO_LONG] + refused[Refusal.TOO_MANY] == 500
    assert refused[Refusal.TOO_LONG] >= MAX_INBOX_BYTES // (2 * MAX_REPORT_BYTES)
    steps = [after - before for before, after in pairwise(taken)]
    assert 0 < max(steps) <= SLICE_BYTES + MAX_REPORT_BYTES


def test_what_comes_after_a_flood_is_taken_up() -> None:
    async def flood() -> FleetMembership:
        fleet = member()
        for round_of in range(3):
            for offset in range(200):
                fleet._deliver(b"x" * 1000, 1000 * round_of + offset)
            for _ in range(20):  # slices
                await asyncio.sleep(0)
            assert not fleet._inbox
        return fleet

    fleet = asyncio.run(flood())
    assert fleet.sharing.checks.refused == {Refusal.UNREADABLE: 600}


def test_a_topic_out_of_reach_keeps_nobody_waiting_and_says_why() -> None:
    came: list[bytes] = []
    topic = FleetTopic(parse_topic("kafka://127.0.0.1:1/fleet"), deliver=lambda report, _: came.append(report))
    topic.start()
    for _ in range(10_000):
        topic.publish(b"report")
    await_true(lambda: topic.trouble is not None, "the trouble is known")
    topic.close()
    assert not came


def test_a_property_that_is_none_is_reported() -> None:
    target = parse_topic("kafka://127.0.0.1:1/fleet")
    topic = FleetTopic(
        type(target)(bootstrap=target.bootstrap, topic=target.topic, properties={"no.such": "property"}),
        deliver=lambda *_: None,
    )
    topic.start()
    await_true(lambda: topic.trouble is not None, "the trouble is known")
    topic.close()
    assert topic.trouble is not None
    assert "no.such" in topic.trouble

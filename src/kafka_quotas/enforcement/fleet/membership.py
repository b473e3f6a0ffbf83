"""A daemon's part in its fleet: the timers, the topic and the buckets around `sharing`.

Invariants: everything happens between requests, in steps of a millisecond; the topic's thread is never waited for.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.config.fleet_settings import FleetSettings
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.fleet.daemon_buckets import DaemonBuckets
from kafka_quotas.enforcement.fleet.sharing import ADJUST_MS, Sharing, SharingSettings
from kafka_quotas.enforcement.fleet.topic import FleetTopic
from kafka_quotas.enforcement.fleet.usage import SharedBucket
from kafka_quotas.enforcement.session.session_state import ThrottledChannel
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import FleetRow

Waiting: TypeAlias = Callable[[int], Mapping[SharedBucket, int]]
"""Returns how many clients are throttled for each bucket at a time."""


class FleetMembership:
    """The membership of one daemon in its fleet."""

    def __init__(
        self,
        settings: DaemonSettings,
        fleet: FleetSettings,
        buckets: DaemonBuckets,
        *,
        clock: Clock,
        notify: Notify,
        waiting: Waiting,
    ) -> None:
        """Make a member, which joins with `start`.

        Args:
            settings: The daemon's settings.
            fleet: Those of its fleet.
            buckets: The daemon's buckets.
            clock: The daemon's clock.
            notify: The daemon's log.
            waiting: Returns how many clients wait.
        """
        self._settings = fleet
        self._buckets = buckets
        self._clock = clock
        self._notify = notify
        self._waiting = waiting
        rules = settings.rules
        sharing = SharingSettings(
            fleet=fleet.name,
            name=f"{socket.gethostname()}:{settings.listeners[0].listen.port or os.getpid()}",
            windows=f"{rules.window}, {rules.mutation_window}",
            span_ms=rules.window.samples * rules.window.window_ms,
            sample_ms=rules.window.window_ms,
            fallback=fleet.fallback,
        )
        self.sharing = Sharing(secrets.randbits(64), sharing, clock.now_ms(), notify=notify)
        self._loop = asyncio.get_running_loop()
        self._topic = FleetTopic(fleet.target, deliver=self._deliver)
        self._running: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._reported_ms = 0

    async def start(self) -> None:
        """Start, and return once the member has joined or has found the topic out of reach."""
        self._topic.start()
        self._running = self._loop.create_task(self._run())
        await self._joined.wait()
        if self.sharing.is_cut_off:
            return
        fields: dict[str, str | float] = {"fleet": self._settings.name, "members": self.sharing.members.count}
        self._notify(LogEvent(event="fleet: joined", fields={**fields, "topic": str(self._settings.target)}))

    async def close(self) -> None:
        """Report to the others that this member ends, and end."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._topic.publish(self.sharing.leave(self._clock.now_ms()))
        await asyncio.to_thread(self._topic.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ADJUST_MS / 1000.0)
            try:
                self._step(self._clock.now_ms())
            except Exception as error:  # noqa: BLE001 - a defect must not end the sharing of all other buckets
                self._notify(LogEvent.failure("fleet: a step failed", error))

    def _step(self, now_ms: int) -> None:
        sharing = self.sharing
        self._buckets.pool.idle_share = sharing.idle_share
        self._buckets.offer(sharing.offer, now_ms)
        sharing.adjust(now_ms)
        if sharing.is_joined:
            self._joined.set()
        # Half a step early rather than a whole one late.
        if now_ms - self._reported_ms >= sharing.settings.interval_ms - ADJUST_MS // 2:
            self._reported_ms = now_ms
            self._topic.publish(sharing.report(now_ms, self._waiting(now_ms)))

    def _deliver(self, report: bytes, offset: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._receive, report, offset)

    def _receive(self, report: bytes, offset: int) -> None:
        self.sharing.receive(report, offset, self._clock.now_ms())

    def status(self) -> FleetRow:
        """Return what an operator should know."""
        sharing = self.sharing
        return FleetRow(
            name=self._settings.name,
            topic=str(self._settings.target),
            member=sharing.settings.name,
            members=sharing.members.count,
            others=tuple(sorted(member.name for member in sharing.members.alive.values())),
            not_trusted=len(sharing.members.strangers),
            wrong_clocks=sum(member.has_wrong_clock for member in sharing.members.alive.values()),
            cut_off=sharing.is_cut_off,
            fallback=self._settings.fallback.value,
            trouble=self._topic.trouble,
            shared_buckets=sharing.shared_buckets,
            published_bytes=sharing.published_bytes,
            received_bytes=sharing.received_bytes,
        )


def waiting_clients(channels: Iterable[ThrottledChannel], now_ms: int) -> Counter[SharedBucket]:
    """Return how many clients are throttled for each bucket at a time."""
    waiting: Counter[SharedBucket] = Counter()
    for channel in channels:
        if channel.until_ms > now_ms and (bucket := channel.limiter.state) is not None:
            waiting[bucket] += 1
    return waiting

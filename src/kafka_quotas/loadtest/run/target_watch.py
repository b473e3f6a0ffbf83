"""The watch of a run's target, whatever it is: an embedded cluster, a daemon in front of one, or brokers.

Every broker that the target names is asked for metadata once a second, over one connection that lasts. A throttled
client has no responses for seconds, so its silence shows no outage. This connection moves no records, and no quota on
bytes holds it back. It names itself as the first client of the run, so that the target sees nobody that is not part of
the run.

A target that was restarted has lost its quota windows. It shows by the end of the connection.
"""

import asyncio
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.clients.raw.access import client_access
from kafka_quotas.loadtest.clients.raw.connection import RawConnection
from kafka_quotas.loadtest.clients.raw.leaders import Address, Leaders
from kafka_quotas.loadtest.clients.raw.login import CONTACT_S, opened
from kafka_quotas.loadtest.plan.plan import LoadPlan
from kafka_quotas.loadtest.run.watches import RunWatch
from kafka_quotas.stores.kafka.properties import KafkaAccess
from kafka_quotas.wire.client.metadata import MetadataRequest

INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 8.0
"""Longest wait for an answer, within which even a busy target answers."""
_VERSION: Final = 8
_MOST_BROKERS: Final = 50


class Outages:
    """The outages of one server, from the answers and failures of its watch in order of time.

    There is no outage before the first answer: the client may have no login there.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._has_answered = False
        self._since_s: float | None = None
        self._is_silence = False
        self._past: list[str] = []

    @property
    def findings(self) -> tuple[str, ...]:
        """The outages, one line each."""
        if self._since_s is None:
            return tuple(self._past)
        return (*self._past, f"{self._server} did not answer any more from {self._since_s:.0f} s on")

    def answered(self, now_s: float) -> None:
        """Record an answer, which ends an outage."""
        self._has_answered = True
        if self._since_s is None:
            return
        if self._is_silence or now_s - self._since_s >= INTERVAL_S:
            self._past.append(f"{self._server} did not answer from {self._since_s:.0f} s to {now_s:.0f} s")
        else:
            self._past.append(
                f"{self._server} closed a connection after {self._since_s:.0f} s and took another at once: "
                "it was restarted, or cut off"
            )
        self._since_s = None

    def failed(self, asked_s: float, *, is_silence: bool) -> None:
        """Record a request that got no answer in time (a silence), or whose connection ended or was refused."""
        if self._has_answered and self._since_s is None:
            self._since_s, self._is_silence = asked_s, is_silence


class TargetWatch(RunWatch):
    """The watch for outages and restarts of the servers of a plan.

    A server that refuses the login is not watched: the run itself reports that. A login that raw clients don't know
    leaves the ports alone to watch.
    """

    def __init__(self, plan: LoadPlan, *, interval_s: float = INTERVAL_S, patience_s: float = PATIENCE_S) -> None:
        super().__init__(interval_s=interval_s)
        self._plan = plan
        self._patience_s = patience_s
        self._client_id = plan.entities[0].name.client_id
        self._outages: dict[Address, Outages] = {}

    @property
    def findings(self) -> tuple[str, ...]:
        """The outages of all servers, one line each."""
        return tuple(finding for each in self._outages.values() for finding in each.findings)

    def watch(self) -> None:
        """Ask every server until the end, and once more then."""
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        try:
            access = client_access(self._plan, self._plan.entities[0])
        except UsageError:
            access = None
        servers = Leaders(self._plan.bootstrap).servers
        found = servers if access is None else await self._brokers(servers, access)
        self._outages = {address: Outages(f"{address[0]}:{address[1]}") for address in found[:_MOST_BROKERS]}
        await asyncio.gather(*(self._watch_one(address, access) for address in self._outages))

    async def _brokers(self, servers: tuple[Address, ...], access: KafkaAccess) -> tuple[Address, ...]:
        """Return the brokers that the first server with an answer names, else the servers themselves."""
        for server in servers:
            try:
                connection = await opened(server, access=access, client_id=self._client_id)
            except (OSError, KafkaQuotasError):
                continue
            try:
                metadata = await connection.ask(
                    MetadataRequest(), _VERSION, client_id=self._client_id, within_s=self._patience_s
                )
                return tuple(dict.fromkeys((broker.host, broker.port) for broker in metadata.brokers)) or servers
            except (OSError, KafkaQuotasError):
                continue
            finally:
                connection.close()
        return servers

    async def _watch_one(self, address: Address, access: KafkaAccess | None) -> None:
        outages = self._outages[address]
        connection: RawConnection | None = None
        is_ending = False
        while not is_ending:
            is_ending = self.stop.is_set()
            asked_s = self.now_s()
            is_down = False
            try:
                if access is None:
                    await _knock(address)
                else:
                    connection = connection or await opened(address, access=access, client_id=self._client_id)
                    await connection.ask(
                        MetadataRequest(), _VERSION, client_id=self._client_id, within_s=self._patience_s
                    )
                outages.answered(self.now_s())
            except KafkaQuotasError:
                return
            except OSError as error:
                # A connection that ended is made again at once: a restart of a moment must not look like an outage.
                is_down = connection is None
                if connection is not None:
                    connection.close()
                connection = None
                outages.failed(asked_s, is_silence=isinstance(error, TimeoutError))
                is_ending = is_ending or self.stop.is_set()  # a server that is down is not asked once more
            if (is_down or connection is not None or access is None) and not is_ending:
                await asyncio.to_thread(self.stop.wait, self.interval_s)
        if connection is not None:
            connection.close()


async def _knock(address: Address) -> None:
    """Connect to a port and leave again."""
    async with asyncio.timeout(CONTACT_S):
        _, writer = await asyncio.open_connection(*address)
    writer.close()


class ClockWatch:
    """The watch for steps of the machine's clock, by which brokers keep quota windows."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self._steps: list[str] = []

    @property
    def findings(self) -> tuple[str, ...]:
        """The steps, one line each."""
        return tuple(self._steps)

    def look(self, *, wall_ms: float, monotonic_ms: float, elapsed_s: float) -> None:
        """Compare the two clocks, read at the same instant, with their last readings.

        A step is at least `STEP_MS` between two looks, so that a clock which is slewed does not count.
        """
        offset_ms = wall_ms - monotonic_ms
        step_ms = 0.0 if self._offset_ms is None else offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        if abs(step_ms) >= STEP_MS:
            direction = "forward" if step_ms > 0 else "back"
            self._steps.append(f"the clock was set {direction} by {abs(step_ms) / 1000:.1f} s after {elapsed_s:.0f} s")


STEP_MS: Final = 500.0
"""Smallest step of the clock that voids a run."""

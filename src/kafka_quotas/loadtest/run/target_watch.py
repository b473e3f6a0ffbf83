"""The watches of a run: for changes of its quotas, outages of its target, and steps of the clock.

The quotas are read every few seconds, and once more at the end.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.clients.raw.connection import (
    CONTACT_S,
    Address,
    Leaders,
    RawConnection,
    asked,
    client_access,
    opened,
)
from kafka_quotas.loadtest.plan.plan import ClientName, LoadPlan, PlannedRestart
from kafka_quotas.loadtest.run.journal import InForce, differences, stored_in_force
from kafka_quotas.stores.kafka.broker_client import KafkaAccess
from kafka_quotas.stores.store import Store
from kafka_quotas.wire.client.admin import MetadataRequest

_QUOTAS_EVERY_S: Final = 2.0


class RunWatch(ABC):
    """A watch in a thread of its own, while the context lasts."""

    def __init__(self, *, interval_s: float, start_s: float | None = None) -> None:
        self.interval_s = interval_s
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self.watch, daemon=True)
        self._start_s = start_s

    @abstractmethod
    def watch(self) -> None:
        """Look every `interval_s` seconds until `stop` is set."""

    def now_s(self) -> float:
        """Return the seconds since the given start, or else since the start of the watch."""
        return time.monotonic() - (self._start_s or 0.0)

    def __enter__(self) -> Self:
        self._start_s = time.monotonic() if self._start_s is None else self._start_s
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()


class QuotaWatch(RunWatch):
    """The watch for changes of quotas, over a connection of its own.

    `expected` has the quotas that apply to the clients when the load starts, and after it those that apply once the run
    itself has changed them.
    """

    def __init__(
        self, opened: Callable[[], Store], *, names: Sequence[ClientName], expected: Sequence[InForce]
    ) -> None:
        super().__init__(interval_s=_QUOTAS_EVERY_S)
        self._opened = opened
        self._names = names
        self._expected = expected
        self._found: dict[str, float] = {}

    @property
    def findings(self) -> tuple[str, ...]:
        """The changes and when the watch noticed them, one line each, in order."""
        return tuple(f"{change}, noticed {at_s:.0f} s after the start" for change, at_s in tuple(self._found.items()))

    def watch(self) -> None:
        """Look until the end and once more then, and reopen a store that does not answer."""
        store: Store | None = None
        ending = False
        while not ending:
            ending = self.stop.wait(self.interval_s)
            try:
                store = store or self._opened()
                found = stored_in_force(store, self._names)
                for change in min((differences(each, found) for each in self._expected), key=len):
                    self._found.setdefault(change, self.now_s())
            except KafkaQuotasError:
                if store is not None:
                    store.close()
                store = None
        if store is not None:
            store.close()


INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 8.0
"""Longest wait for an answer, within which even a busy target answers."""
_ASKED: Final = (MetadataRequest(), 8)
_MOST_BROKERS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One outage of a server, in seconds since the start of the load."""

    since_s: float
    until_s: float | None
    """None for one that lasts."""
    text: str

    def is_within(self, planned: PlannedRestart) -> bool:
        """Return whether it is part of a planned restart, to the interval in which servers are asked."""
        is_over = self.until_s is not None and self.until_s <= planned.at_s + planned.within_s + INTERVAL_S
        return is_over and self.since_s >= planned.at_s - INTERVAL_S


class Outages:
    """The outages of one server, from the answers and failures of its watch in order of time.

    There is no outage before the first answer: the client may have no login there.
    """

    def __init__(self, server: str, planned: Sequence[PlannedRestart] = ()) -> None:
        self._server = server
        self._planned = tuple(planned)
        self._has_answered = False
        self._since_s: float | None = None
        self._is_silence = False
        self._past: list[Outage] = []

    @property
    def all(self) -> tuple[Outage, ...]:
        """All outages in order, planned or not."""
        if self._since_s is None:
            return tuple(self._past)
        text = f"{self._server} did not answer any more from {self._since_s:.0f} s on"
        return (*self._past, Outage(since_s=self._since_s, until_s=None, text=text))

    @property
    def findings(self) -> tuple[str, ...]:
        """The outages that nobody planned, and the planned restarts that did not take place, one line each."""
        outages = self.all
        unplanned = [each.text for each in outages if not any(map(each.is_within, self._planned))]
        unseen = [
            f"{self._server} was not restarted from {each.at_s:.0f} s to {each.at_s + each.within_s:.0f} s, as planned"
            for each in self._planned
            if not any(outage.is_within(each) for outage in outages)
        ]
        return (*unplanned, *unseen)

    @property
    def restarts(self) -> tuple[str, ...]:
        """The outages that were planned, one line each."""
        return tuple(f"{each.text}, as planned" for each in self.all if any(map(each.is_within, self._planned)))

    def answered(self, now_s: float) -> None:
        """Record an answer, which ends an outage."""
        self._has_answered = True
        if self._since_s is None:
            return
        if self._is_silence or now_s - self._since_s >= INTERVAL_S:
            text = f"{self._server} did not answer from {self._since_s:.0f} s to {now_s:.0f} s"
        else:
            text = (
                f"{self._server} closed a connection after {self._since_s:.0f} s and took another at once: "
                "it was restarted, or cut off"
            )
        self._past.append(Outage(since_s=self._since_s, until_s=now_s, text=text))
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

    def __init__(self, plan: LoadPlan, *, start_s: float | None = None) -> None:
        super().__init__(interval_s=INTERVAL_S, start_s=start_s)
        self._plan = plan
        self._outages: dict[Address, Outages] = {}
        self._names: dict[Address, tuple[str, ...]] = {}
        """HOST:PORT of each server, and its ids as far as they are known."""

    @property
    def findings(self) -> tuple[str, ...]:
        """The outages of all servers, and the restarts that were planned in vain, one line each."""
        known = {name for names in self._names.values() for name in names}
        unknown = dict.fromkeys(each.server for each in self._plan.restarts if each.server not in known)
        return (
            *(finding for each in self._outages.values() for finding in each.findings),
            *(f"no server of the target is {name}, which was to be restarted" for name in unknown),
        )

    @property
    def restarts(self) -> tuple[str, ...]:
        """The planned restarts of all servers that took place, one line each."""
        return tuple(restart for each in self._outages.values() for restart in each.restarts)

    def watch(self) -> None:
        """Ask every server until the end, and once more then."""
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        try:
            access = client_access(self._plan, self._plan.entities[0])
        except UsageError:
            access = None
        servers = Leaders(self._plan.bootstrap).servers
        brokers = {} if access is None else await self._brokers(servers, access)
        for (host, port), ids in (brokers or dict.fromkeys(servers, ())).items():
            names = self._names[host, port] = (f"{host}:{port}", *ids)
            planned = [each for each in self._plan.restarts if each.server in names]
            self._outages[host, port] = Outages(f"{host}:{port}", planned)
        await asyncio.gather(*(self._watch_one(address, access) for address in self._outages))

    async def _brokers(self, servers: tuple[Address, ...], access: KafkaAccess) -> dict[Address, tuple[str, ...]]:
        """Return the ids of the brokers that all servers name, as each daemon names its own.

        What one of several servers alone names is a daemon's own, and has the name of that server as well.
        """
        ids: dict[Address, tuple[str, ...]] = {}
        named_by: dict[Address, set[Address]] = {}
        for server in servers:
            try:
                metadata = await asked(server, *_ASKED, access=access, within_s=PATIENCE_S)
                for broker in metadata.brokers:
                    named_by.setdefault((broker.host, broker.port), set()).add(server)
                    known = ids.setdefault((broker.host, broker.port), ())
                    if str(broker.node_id) not in known:
                        ids[broker.host, broker.port] = (*known, str(broker.node_id))
            except (OSError, KafkaQuotasError):
                continue
        for address, (first, *others) in named_by.items():
            if len(servers) > 1 and not others:
                ids[address] = (*ids[address], f"{first[0]}:{first[1]}")
        return dict(list(ids.items())[:_MOST_BROKERS])

    async def _watch_one(self, address: Address, access: KafkaAccess | None) -> None:
        outages = self._outages[address]
        connection: RawConnection | None = None
        is_ending = False
        while not is_ending:
            is_ending = self.stop.is_set()
            asked_s = self.now_s()
            was_open, is_down = connection is not None, False
            try:
                if access is None:
                    async with asyncio.timeout(CONTACT_S):
                        _, writer = await asyncio.open_connection(*address)
                    writer.close()
                else:
                    connection = connection or await opened(address, access=access)
                    await connection.ask(*_ASKED, within_s=PATIENCE_S)
                outages.answered(self.now_s())
            except KafkaQuotasError:
                return
            except OSError as error:
                # A connection that lasted is made again at once: a restart of a moment must not look like an outage.
                is_down = not was_open
                if connection is not None:
                    connection.close()
                connection = None
                outages.failed(asked_s, is_silence=isinstance(error, TimeoutError))
                is_ending = is_ending or self.stop.is_set()  # a server that is down is not asked once more
            if (is_down or connection is not None or access is None) and not is_ending:
                await asyncio.to_thread(self.stop.wait, self.interval_s)
        if connection is not None:
            connection.close()


class ClockWatch:
    """The watch for steps of the machine's clock, by which brokers keep quota windows."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self.findings: list[str] = []

    def look(self, *, wall_ms: float, monotonic_ms: float, elapsed_s: float) -> None:
        """Compare the two clocks, read at the same instant, with their last readings.

        A step is at least `STEP_MS` between two looks, so that a clock which is slewed does not count.
        """
        offset_ms = wall_ms - monotonic_ms
        step_ms = 0.0 if self._offset_ms is None else offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        if abs(step_ms) >= STEP_MS:
            direction = "forward" if step_ms > 0 else "back"
            self.findings.append(
                f"the clock was set {direction} by {abs(step_ms) / 1000:.1f} s after {elapsed_s:.0f} s"
            )


STEP_MS: Final = 500.0
"""Smallest step of the clock that voids a run."""

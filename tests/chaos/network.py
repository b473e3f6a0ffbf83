"""A daemon between two proxies, one for its clients and one in front of a broker in memory."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.brokers.fake_broker import Handler, connected, fake_broker
from tests.support.daemon.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.support.daemon.process import DaemonProcess, set_quota, store_url
from tests.support.frames.recorded_exchange import answer, converse, steps
from tests.support.processes.awaiting import await_true
from tests.support.processes.figures import open_descriptors

from kafka_quotas.core.model.entity import Entity

LIMIT = 1e9
"""Never reached: the fault is what stops a connection."""


@dataclass(slots=True)
class NextFaults:
    """What the next connection of a proxy meets.

    Each holds for one connection.
    """

    faults: Faults = field(default_factory=Faults)

    def take(self, _number: int) -> Faults:
        taken, self.faults = self.faults, Faults()
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A daemon between two proxies: one for clients, one in front of a broker in memory."""

    daemon: DaemonProcess
    events: Path
    counts: Path
    client_side: FaultProxy
    broker_side: FaultProxy
    next_client: NextFaults
    next_broker: NextFaults

    def timers(self) -> int:
        """Return how many timers the daemon has set."""
        self.counts.unlink(missing_ok=True)
        self.daemon.send(signal.SIGUSR2)
        await_true(self.counts.exists, "the daemon counts its objects")
        return int(json.loads(self.counts.read_text()).get("TimerHandle", 0))

    def at_rest(self) -> tuple[int, int]:
        """Return how many descriptors and timers the daemon has once everything was used that it opens only once."""
        self.wait_for_connections(self.warm_up())
        await_true(lambda: any(self.events.glob("*.part")), "the event log is open")
        return open_descriptors(self.daemon.pid), self.timers()

    def warm_up(self) -> int:
        """Go through the exchange and return how many connections there were before."""
        before = self.daemon.status().connections
        with connected(self.daemon.bootstrap) as client:
            done = converse(client, "warmup")
        assert done == len(steps("warmup")), f"the exchange ended after {done} answers"
        return before

    def wait_for_connections(self, count: int) -> None:
        """Wait until the daemon has so many connections, and no more."""
        try:
            self.daemon.wait_until(lambda status: status.connections == count, timeout_s=240)
        except AssertionError:
            connections = self.daemon.status().connections
            raise AssertionError(f"{connections} connections are left, not {count}") from None

    def wait_for_figures(self, *, descriptors: int, timers: int) -> None:
        """Wait until the daemon has no more descriptors and timers than these."""
        await_true(lambda: open_descriptors(self.daemon.pid) <= descriptors, "descriptors are closed")
        await_true(lambda: self.timers() <= timers, "timers are gone")


@contextmanager
def network(folder: Path, *, broker: Handler = answer) -> Iterator[Network]:
    """A daemon that charges everybody and logs each charge, in front of a broker that does what `broker` does."""
    set_quota(folder, Entity.of(client_id=None), producer_byte_rate=LIMIT, consumer_byte_rate=LIMIT)
    counts, events = folder / "counts.json", folder / "events"
    next_client, next_broker = NextFaults(), NextFaults()
    with fake_broker(broker) as behind, fault_proxy(behind.address, next_broker.take) as broker_side:
        daemon = DaemonProcess(
            [
                *("--upstream", broker_side.address, "--listen", "127.0.0.1:0", "--store", store_url(folder)),
                *("--control", str(folder / "control.sock"), "--event-log", str(events)),
            ],
            program=("-m", "tests.support.daemon.counted_daemon", str(counts)),
        )
        try:
            # What the daemon asks the broker at its start would take the first fault.
            await_true(lambda: bool(broker_side.passages), "the daemon connects to the broker")
            with fault_proxy(daemon.bootstrap, next_client.take) as client_side:
                yield Network(
                    daemon=daemon,
                    events=events,
                    counts=counts,
                    client_side=client_side,
                    broker_side=broker_side,
                    next_client=next_client,
                    next_broker=next_broker,
                )
        finally:
            daemon.stop()
    assert not daemon.lines("Traceback"), "".join(daemon.log)
    assert not daemon.lines("internal error"), "".join(daemon.log)

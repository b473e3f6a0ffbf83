"""The engines that drive the clients of a run: one thread per engine, each with one or many clients.

librdkafka and kafka-python bring threads of their own, so each of their clients is an engine. All raw clients of a run
share one engine, an event loop, and may be a thousand.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.record.recorder import Recorder, room_for

if TYPE_CHECKING:
    from kafka_quotas.loadtest.clients.wire_overhead import WireCount


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """The instants of a run, in nanoseconds of the monotonic clock."""

    start_ns: int
    measure_from_ns: int
    """End of the warm-up."""
    end_ns: int

    def part_of(self, entity: ClientLoad) -> tuple[int, int]:
        """Return when a client starts and stops to take part, in nanoseconds of the same clock."""
        end_ns = self.end_ns
        if entity.stop_s is not None:
            end_ns = min(end_ns, self.start_ns + int(entity.stop_s * 1e9))
        return self.start_ns + int(entity.start_s * 1e9), end_ns

    def recorder(self, plan: LoadPlan) -> Recorder:
        """Return an empty recorder for one client, whose buffers depend on the number of clients in the plan."""
        return Recorder(
            start_ns=self.start_ns,
            measure_from_ns=self.measure_from_ns,
            window_ms=plan.window_ms,
            room=room_for(len(plan.entities)),
        )


class LoadClient(Protocol):
    """One client of a run, as the run and its result see it."""

    entity: ClientLoad
    recorder: Recorder
    wire: "WireCount"
    """Bytes on the wire against bytes of payload."""
    unfinished: int
    """Records or requests that were sent and had no response at the end."""
    error: Exception | None
    """The error that ends the run."""

    @property
    def trouble(self) -> Exception | None:
        """The last error that did not end the run, or None.

        The run reports it if nothing is ever acknowledged.
        """
        ...


class ClientEngine(Protocol):
    """The clients that one thread drives.

    An engine sends nothing before `RunClock.start_ns` or after `RunClock.end_ns`.
    """

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The clients, whose recorders fill while the engine runs."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Drive the clients until the run ends, `stop` is set, or a client has an `error`."""
        ...

"""What drives the clients of a run: one thread per engine, each with one client or with many.

librdkafka and kafka-python bring threads of their own, so each of their clients is an engine; all raw clients of a run
share one, an event loop, and may be a thousand.
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
    """The instants of a run, nanoseconds of the monotonic clock."""

    start_ns: int
    measure_from_ns: int
    end_ns: int

    def part_of(self, entity: ClientLoad) -> tuple[int, int]:
        """When a client begins and ends to take part, in nanoseconds of the same clock."""
        end_ns = self.end_ns
        if entity.stop_s is not None:
            end_ns = min(end_ns, self.start_ns + int(entity.stop_s * 1e9))
        return self.start_ns + int(entity.start_s * 1e9), end_ns

    def recorder(self, plan: LoadPlan) -> Recorder:
        """The empty record of one client of the plan, with the room that so many clients leave it."""
        return Recorder(
            start_ns=self.start_ns,
            measure_from_ns=self.measure_from_ns,
            window_ms=plan.window_ms,
            room=room_for(len(plan.entities)),
        )


class LoadClient(Protocol):
    """One client of a run, as the run and its result see it.

    `unfinished` records (or requests) were sent and still unanswered at the end. `wire` is bytes on the wire per byte
    of payload. `error` ends the run; `trouble` is what went wrong last, told if nothing ever gets through.
    """

    entity: ClientLoad
    recorder: Recorder
    wire: "WireCount"
    unfinished: int
    error: Exception | None

    @property
    def trouble(self) -> Exception | None:
        """What went wrong last; None where nothing did."""
        ...


class ClientEngine(Protocol):
    """Clients that one thread drives. Nothing is sent before `RunClock.start_ns` or after `end_ns`."""

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The clients, whose recorders fill while the engine runs."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Nothing; the run is over, or `stop` was set, or a client's `error` is."""
        ...

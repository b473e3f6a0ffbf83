"""What drives the clients of a run: one thread per engine, each with one client or with many.

librdkafka and kafka-python bring threads of their own, so each of their clients is an engine; all raw clients of a run
share one, an event loop, and may be a thousand.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafka_quotas.loadtest.plan import EntityLoad
from kafka_quotas.loadtest.recorder import Recorder

if TYPE_CHECKING:
    from kafka_quotas.loadtest.wire_ratio import WireCount


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """The instants of a run, nanoseconds of the monotonic clock."""

    start_ns: int
    measure_from_ns: int
    end_ns: int


class LoadClient(Protocol):
    """One client of a run, as the run and its result see it.

    `unfinished` records (or requests) were sent and still unanswered at the end. `wire` is bytes on the wire per byte
    of payload. `error` ends the run; `trouble` is what went wrong last, told if nothing ever gets through.
    """

    entity: EntityLoad
    recorder: Recorder
    wire: "WireCount"
    unfinished: int
    error: Exception | None

    @property
    def trouble(self) -> Exception | None:
        """What went wrong last; None where nothing did."""
        ...


class Engine(Protocol):
    """Clients that one thread drives. Nothing is sent before `RunClock.start_ns` or after `end_ns`."""

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The clients, whose recorders fill while the engine runs."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Nothing; the run is over, or `stop` was set, or a client's `error` is."""
        ...

"""The thread that turns charges into lines and hands them to a sink.

Invariants: the event loop never waits for it; it works in small slices, between which others may run; a sink that fails
costs lines, which are counted, and is said once until it works again; closing writes what is left.
"""

import threading
from typing import Final, Protocol

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.event_log import PendingCharges
from kafka_quotas.enforcement.event_log_files import EventFiles, EventLogError
from kafka_quotas.enforcement.event_log_line import charge_line
from kafka_quotas.enforcement.event_log_settings import EventLogSettings, FolderTarget
from kafka_quotas.enforcement.event_log_topic import EventTopic
from kafka_quotas.enforcement.notice import Notice, Notify, Severity, defect

PAUSE_S: Final = 0.2
"""How long charges gather before they are written."""
SLICE: Final = 200
"""Lines at once: half a millisecond, for as long the event loop may have to wait for the interpreter."""
_JOIN_S: Final = 10.0


class EventSink(Protocol):
    """Takes lines; used by one thread at a time."""

    def write(self, lines: list[str]) -> int:
        """How many of the lines were taken; raises `EventLogError` where none could be."""
        ...

    def settle(self) -> None:
        """Nothing; called a few times per second, whether or not there are lines."""
        ...

    def close(self) -> None:
        """Nothing; what was taken is where it belongs."""
        ...


class EventLogWriter:
    """Writes `charges` until it is closed."""

    def __init__(self, settings: EventLogSettings, *, notify: Notify, sink: EventSink | None = None) -> None:
        self.charges = PendingCharges()
        self.target = str(settings.target.folder if isinstance(settings.target, FolderTarget) else settings.target)
        self._cluster = settings.cluster
        self._notify = notify
        self._sink = sink if sink is not None else _open_sink(settings)
        self._stop = threading.Event()
        self._failing = False
        self._lost = 0
        self.written = 0
        """Lines that the sink took, since the start."""
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)

    @property
    def dropped(self) -> int:
        """Charges that are in no line: there was no room for them, or the sink did not take them."""
        return self.charges.dropped + self._lost

    def start(self) -> None:
        """Nothing; charges are written from now on."""
        self._thread.start()

    def close(self) -> None:
        """Nothing; what was charged is written, and the sink is closed."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self._write_pending()
        self._write_pending()
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - as below
            self._say_failing(EventLogError(defect(error)))

    def _write_pending(self) -> None:
        """Write what is on the queue by now; no exception ends the thread."""
        try:
            self._write_slices()
        except Exception as error:  # noqa: BLE001 - a defect costs the lines at hand, not all that come after them
            self._say_failing(EventLogError(defect(error)))

    def _write_slices(self) -> None:
        for _ in range(0, len(self.charges), SLICE):
            lines = [charge_line(self._cluster, *each) for each in self.charges.take(SLICE)]
            self._write(lines)
        self._sink.settle()

    def _write(self, lines: list[str]) -> None:
        """Nothing; what the sink took is counted, and the rest as lost."""
        try:
            taken = self._sink.write(lines)
        except Exception as error:  # noqa: BLE001 - as above
            self._lost += len(lines)
            self._say_failing(error if isinstance(error, EventLogError) else EventLogError(defect(error)))
            return
        self.written += taken
        self._lost += len(lines) - taken
        if taken < len(lines):
            self._say_failing(EventLogError(f"{len(lines) - taken} events were not taken"))
        elif self._failing:
            self._failing = False
            self._notify(Notice(event="event log is written again", fields={"lost": self.dropped}))

    def _say_failing(self, error: KafkaQuotasError) -> None:
        if not self._failing:
            self._failing = True
            self._notify(
                Notice(
                    event="event log can't be written; events are lost until it can",
                    severity=Severity.ERROR,
                    fields={"target": self.target, "error": error.message},
                )
            )


def _open_sink(settings: EventLogSettings) -> EventSink:
    target = settings.target
    return EventFiles(target) if isinstance(target, FolderTarget) else EventTopic(target)

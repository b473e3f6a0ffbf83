"""The destinations of events: a folder of files, or a topic.

Invariants of a folder: `*.jsonl` never changes again, so any reader may note that it was read; the file that grows is
`*.jsonl.part`. What a killed daemon left is finished at the next start, without its torn last line.
Invariants of a topic: a line is a record, keyed so that one client's events stay in order. librdkafka's queue is
bounded; what does not fit, and what no broker took in time, is lost and counted.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import TopicTarget
from kafka_quotas.enforcement.config.settings import EventLogSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

FINISHED: Final = ".jsonl"
GROWING: Final = ".jsonl.part"
MODE: Final = 0o640
"""Most permissions of a file: it names users, client-ids and addresses."""
_FOLDER_MODE: Final = 0o750
"""Permissions of a folder that is made here."""


class EventLogError(KafkaQuotasError):
    """Error for an event log that can't be written."""


class EventFiles:
    """The sink that writes lines to files of a folder, one after the other.

    For one thread at a time.
    """

    def __init__(self, settings: EventLogSettings, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        assert isinstance(settings.target, Path)
        folder = self._folder = settings.target
        self._settings = settings
        self._monotonic_s = monotonic_s
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._bytes = 0
        self._opened_s = 0.0
        self._number = 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            for left in folder.glob(f"*{GROWING}"):
                _finish(left)
        except OSError as error:
            raise _error(folder, error) from error

    def write(self, lines: list[str]) -> int:
        """Write the lines and return how many are completely in a file."""
        content = "".join(lines).encode()
        written = 0
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            while written < len(content):  # a disk that fills up, or a signal, ends a write early and without an error
                written += self._file.write(content[written:])
        except OSError as error:
            self.close()
            complete = content.count(b"\n", 0, written)
            if complete:
                return complete  # the next call fails, with the reason
            raise _error(self._folder, error) from error
        self._bytes += len(content)
        self.settle()
        return len(lines)

    def settle(self) -> None:
        """Finish a file that is large or old enough, and remove the oldest files beyond `keep_bytes`."""
        if self._file is None:
            return
        is_old = self._monotonic_s() - self._opened_s >= self._settings.rotate_s
        if self._bytes >= self._settings.rotate_bytes or is_old:
            self.close()
            self._remove_oldest()

    def close(self) -> None:
        """Finish the file that grows, after its last complete line if it can't be written to any more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                _finish(self._path)
            self._file = None

    def _open(self) -> None:
        self._number += 1
        time_utc = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._path = self._folder / f"events-{time_utc}-{os.getpid()}-{self._number:06}{GROWING}"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        self._file = open(descriptor, "wb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor has no path
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._bytes = 0
        self._opened_s = self._monotonic_s()

    def _remove_oldest(self) -> None:
        """Remove the oldest finished files beyond `keep_bytes`, and always keep the newest."""
        with contextlib.suppress(OSError):  # another process may remove files here as well
            sized = [(path, path.stat().st_size) for path in sorted(self._folder.glob(f"events-*{FINISHED}"))]
            surplus = sum(size for _, size in sized) - self._settings.keep_bytes
            for path, size in sized[:-1]:
                if surplus <= 0:
                    return
                path.unlink()
                surplus -= size


def _finish(path: Path) -> None:
    """Cut a file after its last complete line and give it the name of one that does not change.

    A file that another daemon is writing is left alone.
    """
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        content_end = _last_line_end(file)
        file.truncate(content_end)
        os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & MODE)
    if content_end:
        path.rename(path.with_name(path.name.removesuffix(GROWING) + FINISHED))
    else:
        path.unlink()


def _last_line_end(file: IO[bytes], *, step: int = 64 * 1024) -> int:
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - step)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _error(folder: Path, error: OSError) -> EventLogError:
    return EventLogError(
        f"can't write the event log in {folder}: {error.strerror or error}", hint="choose another folder"
    )


CLIENT_ID: Final = "kafka-quotas-event-log"
_FLUSH_S: Final = 5.0
_DEFAULTS: Final = {
    "client.id": CLIENT_ID,
    "linger.ms": 100,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "delivery.timeout.ms": 120_000,
    "log_level": 0,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 32 * 1024,
}


class EventTopic:
    """The sink that passes lines to the producer of a topic.

    For one thread at a time.
    """

    def __init__(self, target: TopicTarget) -> None:
        self._target = target
        self._producer = _opened(target)
        self._undelivered = 0

    def write(self, lines: list[str]) -> int:
        """Produce the lines and return how many were taken, less those lost since the last call."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only daemons that log to a topic

        taken = 0
        for line in lines:
            try:
                self._producer.produce(self._target.topic, line[:-1], key=_key(line), on_delivery=self._delivered)
                taken += 1
            except BufferError:
                break
            except KafkaException as error:
                if taken:
                    break  # the next call reports why
                self._recover(error)
                raise EventLogError(f"can't log to {self._target}: {error}") from error
        self._producer.poll(0)
        lost, self._undelivered = self._undelivered, 0
        return taken - lost

    def settle(self) -> None:
        """Serve the producer's delivery reports."""
        self._producer.poll(0)

    def close(self) -> None:
        """Deliver what the producer holds, drop what is left after some seconds, and end the producer.

        The callback of a record that was not served would keep this sink, in a way that garbage collection can't see.
        """
        self._producer.flush(_FLUSH_S)
        self._producer.purge()
        self._producer.flush(0)
        del self._producer

    def _recover(self, error: "KafkaException") -> None:
        """Replace a producer that has failed for good, as an idempotent one may."""
        if error.args[0].fatal():
            self._producer.purge()
            self._producer.flush(0)
            self._producer = _opened(self._target)

    def _delivered(self, error: "KafkaError | None", record: "Message") -> None:
        del record
        if error is not None:
            self._undelivered += 1


def _opened(target: TopicTarget) -> "Producer":
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - only daemons that log to a topic

    from kafka_quotas.stores.security.librdkafka import librdkafka_properties  # noqa: PLC0415 - as above

    try:
        return Producer(
            librdkafka_properties({**_DEFAULTS, "bootstrap.servers": target.bootstrap, **target.properties})
        )
    except KafkaException as error:
        raise EventLogError(f"can't log to {target}: {error}") from error


def _key(line: str) -> str:
    broker, user = line.index('"broker_id"'), line.index('"user"')
    return line[broker : line.index(",", broker) + 1] + line[user : line.index(',"ip"')]

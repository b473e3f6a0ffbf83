"""TLS contexts that follow their files: a renewed certificate is served from the next connection on.

Invariants: files are looked at when a connection comes, at most once a second; a change that can't be used is logged
once and the context before stays.
"""

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify

LOOK_MS: Final = 1000
"""Shortest time between two looks at the files."""

_Seen: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Per file its time of change (ns), size and inode, None where it is missing."""


class ReloadingTlsContext:
    """One TLS context that `make` makes, at first in the constructor, and the files that it reads."""

    def __init__(
        self, make: Callable[[], ssl.SSLContext], files: Iterable[Path], *, clock: Clock, notify: Notify
    ) -> None:
        self._make = make
        self._files = tuple(files)
        self._now_ms = clock.now_ms
        self._notify = notify
        self._seen = self._look()
        self._looked_ms = self._now_ms()
        self._context = make()

    @property
    def context(self) -> ssl.SSLContext:
        """The context made from the files as they are now."""
        now_ms = self._now_ms()
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._renew()
        return self._context

    def _renew(self) -> None:
        names = ", ".join(str(file) for file in self._files)
        try:
            self._context = self._make()
        except KafkaQuotasError as error:
            self._notify(
                LogEvent.failure("changed certificates can't be used; the earlier ones stay in use", error, files=names)
            )
        else:
            self._notify(LogEvent(event="certificates read again", fields={"files": names}))

    def _look(self) -> _Seen:
        return tuple(map(_state, self._files))


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

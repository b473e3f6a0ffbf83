"""Reloading of policy and quotas while clients are connected: checks all of it before it uses any of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.quotas.store_watcher import StoreWatcher
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify, error_text

Use: TypeAlias = Callable[[], object]
"""Puts what was read in force, and returns the number of changed limits if it has limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadedFile:
    """A file that the daemon reads again on request."""

    path: Path
    read: Callable[[], Use]
    """Reads and checks the file; raises `KafkaQuotasError` if it can't be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The result of a reload."""

    files: tuple[str, ...]
    """Paths of the files that were read."""
    store: str
    """URL of the store."""
    store_trouble: str | None
    """The error that keeps the store's last content in force, None without one."""
    changed: int
    """Number of limits that changed."""
    limits: int
    """Number of limits in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloader:
    """The reloading of the files and the store."""

    files: Sequence[ReloadedFile]
    watcher: StoreWatcher
    limits: Callable[[], int]
    """Returns the number of limits in force."""
    changed: Callable[[], int]
    """Returns the number of limits that the store has changed so far."""
    notify: Notify

    def start(self) -> None:
        """Put the content of every file in force.

        Raises:
            KafkaQuotasError: A file can't be used.
        """
        for use in [file.read() for file in self.files]:
            use()

    async def reload(self, asked_by: str) -> Reloaded:
        """Read the files and the store again, and put their content in force.

        Raises:
            KafkaQuotasError: A file can't be used; everything that was in force stays so.
        """
        self.notify(LogEvent.of("reading quotas again", asked_by=asked_by))
        before = self.changed()
        try:
            changed = self._use_files()
        except KafkaQuotasError as error:
            self.notify(LogEvent.failure("quotas can't be read again; the earlier ones stay in force", error))
            raise
        await self.watcher.reread()
        state = self.watcher.state
        return Reloaded(
            files=tuple(str(file.path) for file in self.files),
            store=state.url,
            store_trouble=state.trouble,
            changed=changed + self.changed() - before,
            limits=self.limits(),
        )

    def _use_files(self) -> int:
        """Put the content of every file in force, and return how many limits differ from before."""
        try:
            results = [use() for use in [file.read() for file in self.files]]
            return sum(result for result in results if isinstance(result, int))
        except KafkaQuotasError:
            raise
        except Exception as error:
            raise KafkaQuotasError(error_text(error)) from error

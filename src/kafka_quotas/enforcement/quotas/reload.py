"""Reading policy and quotas anew while clients are connected: all of it is checked before any of it is used."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.quotas.store_watcher import StoreWatcher
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify, defect

Use: TypeAlias = Callable[[], int]
"""Puts what was read in force, and tells how many limits differ from before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadedFile:
    """A file that the daemon reads again when it is told to.

    `read` returns what puts the content in force; it raises `KafkaQuotasError` where that can't be used.
    """

    path: Path
    read: Callable[[], Use]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload came to: the files that were read, how many limits differ from before, how many there are now.

    `store_trouble` says what keeps the store from being read (None: nothing); its last content stays in force.
    """

    files: tuple[str, ...]
    store: str
    store_trouble: str | None
    changed: int
    limits: int


def reloaded_to_json(result: Reloaded) -> dict[str, Any]:
    """The result as JSON values, field by field."""
    return asdict(result)


def reloaded_from_json(data: object) -> Reloaded:
    """The result that `reloaded_to_json` wrote. Raises `ProtocolError` where fields are missing."""
    try:
        values: dict[str, Any] = {field.name: data[field.name] for field in fields(Reloaded)}  # type: ignore[index]
        values["files"] = tuple(values["files"])
        return Reloaded(**values)
    except (KeyError, TypeError) as error:
        raise ProtocolError("the daemon's answer can't be read", hint="is it of another version?") from error


class Reloader:
    """Reads files and store anew; `limits` tells how many limits are in force."""

    def __init__(
        self,
        files: Sequence[ReloadedFile],
        follower: StoreWatcher,
        *,
        limits: Callable[[], int],
        changed: Callable[[], int],
        notify: Notify,
    ) -> None:
        self._files = files
        self._follower = follower
        self._limits = limits
        self._changed = changed
        self._notify = notify

    def start(self) -> None:
        """Nothing; the content of every file is in force. Raises `KafkaQuotasError` where one can't be used."""
        for use in [file.read() for file in self._files]:
            use()

    async def reload(self, asked_by: str) -> Reloaded:
        """What it came to.

        Raises `KafkaQuotasError` where a file can't be used: then all that was in force still is.
        """
        self._notify(LogEvent(event="reading quotas again", fields={"asked_by": asked_by}))
        before = self._changed()
        try:
            changed = self._use_files()
        except KafkaQuotasError as error:
            self._notify(
                LogEvent(
                    event="quotas can't be read again; those before stay in force",
                    severity=LogLevel.ERROR,
                    fields={"error": error.message},
                )
            )
            raise
        await self._follower.reread()
        state = self._follower.state
        return Reloaded(
            files=tuple(str(file.path) for file in self._files),
            store=state.url,
            store_trouble=state.trouble,
            changed=changed + self._changed() - before,
            limits=self._limits(),
        )

    def _use_files(self) -> int:
        """Put the content of every file in force, and return how many limits differ from before.

        Raises:
            KafkaQuotasError: where a file can't be used, or for a defect of ours, which must not leave anybody waiting.
        """
        try:
            return sum([use() for use in [file.read() for file in self._files]])
        except KafkaQuotasError:
            raise
        except Exception as error:
            raise KafkaQuotasError(defect(error)) from error

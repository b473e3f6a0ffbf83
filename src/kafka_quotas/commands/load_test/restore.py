"""`load-test restore`: undo the changes of runs that could not undo them themselves."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.commands.load_test.cleanup import remove_folder
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.run.journal import RunHeader, UnfinishedRun, journals, unfinished_run
from kafka_quotas.loadtest.run.quota_override import RevertedQuotas, revert_changes
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.stores.factory import open_store
from kafka_quotas.stores.settings import StoreSettings

SettingsOf = Callable[[Path | None], StoreSettings]
"""Returns the settings to reach a cluster, given the client properties file of its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRun:
    """The restored run of a journal, which is deleted unless `alive` or `error` is set."""

    journal: Path
    header: RunHeader | None
    quotas: RevertedQuotas
    topics: tuple[str, ...] = ()
    """Removed topics."""
    folders: tuple[str, ...] = ()
    """Removed folders."""
    alive: bool = False
    """Whether the run is still active and was left alone."""
    error: str | None = None
    """Why the run could not be restored, None if it was."""

    @property
    def ok(self) -> bool:
        """Whether no change is left."""
        return self.error is None


def restore(folder: Path, *, settings_of: SettingsOf, dry_run: bool = False) -> tuple[RestoredRun, ...]:
    """Restore the runs of all journals in the folder, in order.

    A dry run reports the changes without making them, and keeps the journals.
    """
    return tuple(_restored(path, settings_of, dry_run=dry_run) for path in journals(folder))


def _restored(path: Path, settings_of: SettingsOf, *, dry_run: bool) -> RestoredRun:
    try:
        with unfinished_run(path) as unfinished:
            if unfinished is None:
                return RestoredRun(journal=path, header=None, quotas=RevertedQuotas(), alive=True)
            if dry_run:
                return _announced(unfinished)
            return _undone(unfinished, settings_of)
    except KafkaQuotasError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return RestoredRun(journal=path, header=None, quotas=RevertedQuotas(), error=f"{error.message}{hint}")


def _announced(unfinished: UnfinishedRun) -> RestoredRun:
    """Return the changes that a restore would undo if nobody had changed a quota since."""
    return RestoredRun(
        journal=unfinished.path,
        header=unfinished.header,
        quotas=RevertedQuotas(restored=unfinished.changes),
        topics=tuple(f"{prefix}*" for prefix in unfinished.prefixes),
        folders=unfinished.folders,
    )


def _undone(unfinished: UnfinishedRun, settings_of: SettingsOf) -> RestoredRun:
    header = unfinished.header
    settings = settings_of(None if header.command_config is None else Path(header.command_config))
    quotas = RevertedQuotas()
    if unfinished.changes and header.store:
        with closing(open_store(header.store, settings=settings)) as store:
            quotas = revert_changes(store, unfinished.changes)
    topics: list[str] = []
    if unfinished.prefixes and header.bootstrap:
        with closing(TopicAdmin(header.bootstrap, settings=settings)) as admin:
            for prefix in unfinished.prefixes:
                topics += admin.remove(prefix)
    folders = tuple(folder for folder in unfinished.folders if remove_folder(Path(folder)))
    unfinished.path.unlink(missing_ok=True)
    return RestoredRun(journal=unfinished.path, header=header, quotas=quotas, topics=tuple(topics), folders=folders)

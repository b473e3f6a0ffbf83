"""`load-test restore`: undo what runs left behind that could not undo it themselves."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.commands.load_test.cleanup import remove_folder
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.run.journal import RunPlace, Unfinished, journals, left_behind
from kafka_quotas.loadtest.run.quota_override import PutBack, put_back
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.stores.factory import open_store
from kafka_quotas.stores.settings import StoreSettings

SettingsOf = Callable[[Path | None], StoreSettings]
"""The settings to reach a cluster with, by the file of client properties that its run was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRun:
    """What became of one run's journal. `alive`: the run still lasts, and was left alone. `error`: what hindered it.

    `topics` were removed, `folders` too. The journal is gone unless one of the two is set.
    """

    journal: Path
    place: RunPlace | None
    quotas: PutBack
    topics: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    alive: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is left behind."""
        return self.error is None


def restore(folder: Path, *, settings_of: SettingsOf, dry_run: bool = False) -> tuple[RestoredRun, ...]:
    """What became of every journal in the folder, in order; with `dry_run` nothing is changed, and journals stay."""
    return tuple(_restored(path, settings_of, dry_run=dry_run) for path in journals(folder))


def _restored(path: Path, settings_of: SettingsOf, *, dry_run: bool) -> RestoredRun:
    try:
        with left_behind(path) as unfinished:
            if unfinished is None:
                return RestoredRun(journal=path, place=None, quotas=PutBack(), alive=True)
            if dry_run:
                return _announced(unfinished)
            return _undone(unfinished, settings_of)
    except KafkaQuotasError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return RestoredRun(journal=path, place=None, quotas=PutBack(), error=f"{error.message}{hint}")


def _announced(unfinished: Unfinished) -> RestoredRun:
    """What would be undone: all quotas as if nobody had touched them since, the prefixes of topics."""
    return RestoredRun(
        journal=unfinished.path,
        place=unfinished.place,
        quotas=PutBack(restored=unfinished.changes),
        topics=tuple(f"{prefix}*" for prefix in unfinished.prefixes),
        folders=unfinished.folders,
    )


def _undone(unfinished: Unfinished, settings_of: SettingsOf) -> RestoredRun:
    """What was undone; the journal is gone then."""
    place = unfinished.place
    settings = settings_of(None if place.command_config is None else Path(place.command_config))
    quotas = PutBack()
    if unfinished.changes and place.store_url:
        with closing(open_store(place.store_url, settings=settings)) as store:
            quotas = put_back(store, unfinished.changes)
    topics: list[str] = []
    if unfinished.prefixes and place.bootstrap:
        with closing(TopicAdmin(place.bootstrap, settings=settings)) as admin:
            for prefix in unfinished.prefixes:
                topics += admin.remove(prefix)
    folders = tuple(folder for folder in unfinished.folders if remove_folder(Path(folder)))
    unfinished.path.unlink(missing_ok=True)
    return RestoredRun(journal=unfinished.path, place=place, quotas=quotas, topics=tuple(topics), folders=folders)

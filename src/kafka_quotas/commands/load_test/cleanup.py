"""The changes of a run that are undone, however it ends: quotas, topics, its folder.

Each is in the journal before the run makes it. The first Ctrl-C or SIGTERM ends the work, and none the restoring.
"""

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn

from kafka_quotas import loadtest
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.described import Described, Sentences
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import format_quota_value
from kafka_quotas.stores import Store, StoreSettings, open_store

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE_S: Final = 0.1


class SignalGuard:
    """The handling of signals during `interruptible`: the first one interrupts, later ones call `report`."""

    def __init__(self, report: Callable[[], None]) -> None:
        self.seen = False
        self.has_interrupted = False
        self._held = False
        self._report = report

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals back for the block: they are noted and interrupt nothing."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt at the first signal unless signals are held, and report any other."""
        first, self.seen = not self.seen, True
        if first and not self._held:
            self._interrupt()
        self._report()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Hold signals back for the block, and interrupt after it if there was one."""
        with self.held():
            yield
        self.check()

    def check(self) -> None:
        """Interrupt if a signal was seen that has not ended the work."""
        if self.seen:
            self._interrupt()

    def pause(self, seconds: float) -> None:
        """Wait, unless a signal ends the run."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left_s, _PAUSE_S))

    def _interrupt(self) -> NoReturn:
        self.has_interrupted = True
        raise KeyboardInterrupt


@contextmanager
def interruptible(report: Callable[[], None]) -> Iterator[SignalGuard]:
    """Treat Ctrl-C, SIGTERM and SIGHUP as one interruption for the block, in the main thread only."""
    signals = SignalGuard(report)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.signal(number, signals.on_signal) for number in _SIGNALS}
    try:
        yield signals
    except Exception as error:
        # librdkafka's bindings replace an interrupt that meets them by an error of their own, of any class: "Module not
        # found", "a client property is refused".
        if signals.has_interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


FOLDER_PREFIX: Final = "kafka-quotas-"
"""Prefix of every folder that a run creates for itself."""


@contextmanager
def run_folder(journal: loadtest.RunJournal) -> Iterator[Path]:
    """Create a folder for the block and remove it afterwards, or leave that to `load-test restore`."""
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        journal.folder(folder)
        try:
            yield folder
        finally:
            journal.settle(str(folder))


class Cleanup:
    """Undoes the changes of a run, and keeps those that can't be undone in `leftovers`, a line each."""

    def __init__(self, *, signals: SignalGuard, report: Callable[[str], None]) -> None:
        self._signals = signals
        self._report = report
        self.leftovers: list[str] = []

    @contextmanager
    def quotas(
        self,
        journal: loadtest.RunJournal,
        opened: Callable[[], Store],
        wanted: Iterable[tuple[Entity, Mapping[str, float | None]]],
    ) -> Iterator[None]:
        """Store the wanted quotas for the block, and restore the previous ones afterwards."""
        with closing(opened()) as store:
            changes = loadtest.changes_to(store, wanted)
            journal.quotas(changes)
            try:
                # A request that is under way may take effect after it would have been undone.
                with self._signals.deferred():
                    loadtest.make_changes(store, changes)
                yield
            finally:
                with self._signals.held(), self._reverting("quotas"):
                    with closing(opened()) as again:
                        back = loadtest.revert_changes(again, changes)
                    for change in back.foreign:
                        left = "was changed by somebody else during the run and is left as it is"
                        self._report(f"{format_change(change)} {left}")
                    journal.settle(loadtest.QUOTAS)

    @contextmanager
    def topics(
        self, journal: loadtest.RunJournal, opened: Callable[[], loadtest.TopicAdmin], prefix: str
    ) -> Iterator[None]:
        """Remove topics with this prefix after the block, which may create them."""
        with closing(opened()) as admin:
            admin.named(prefix)
        journal.topics(prefix)
        try:
            yield
        finally:
            with self._signals.held(), self._reverting(f"topics {prefix}*"):
                with closing(opened()) as admin:
                    admin.remove(prefix)
                journal.settle(prefix)

    @contextmanager
    def _reverting(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaQuotasError as error:
            left = f"{what} could not be put back: {error.message}; kafka-quotas load-test restore tries again"
            self.leftovers.append(left)
            self._report(left)


def format_change(change: PlannedChange) -> str:
    """Format a quota, its entity and its value before the run for people."""
    key = QUOTA_KEYS.get(change.key)
    before = "not set" if change.old is None else format_quota_value(key, change.old)
    return f"{change.key} of {change.entity} (before the run: {before})"


def remove_folder(path: Path) -> bool:
    """Remove a folder if a run created it for itself, and return whether it existed."""
    is_ours = path.name.startswith(FOLDER_PREFIX) and path.parent == Path(tempfile.gettempdir())
    if not is_ours or path.is_symlink() or not path.is_dir():
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


_STORE: Final = "where its quotas were set; null if the cluster ended with the run"
SettingsOf = Callable[[Path | None], StoreSettings]
"""Returns the settings to reach a cluster, given the client properties file of its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRun:
    """The restored run of a journal, which is deleted unless `alive` or `error` is set."""

    run: str
    """The name of the journal."""
    scenario: str | None = None
    store: Annotated[str | None, Described(text=_STORE)] = None
    alive: bool = False
    """Whether the run is still active and was left alone."""
    error: str | None = None
    """Why the run could not be restored, None if it was."""
    quotas_restored: Sentences = ()
    quotas_as_before: Sentences = ()
    """The quotas that were as before the run already."""
    quotas_changed_by_others: Sentences = ()
    """The quotas that were left alone."""
    topics: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def restore(folder: Path, *, settings_of: SettingsOf, dry_run: bool = False) -> tuple[RestoredRun, ...]:
    """Restore the runs of all journals in the folder, in order."""
    return tuple(_restored(path, settings_of, dry_run=dry_run) for path in loadtest.journals(folder))


def _restored(path: Path, settings_of: SettingsOf, *, dry_run: bool) -> RestoredRun:
    try:
        with loadtest.unfinished_run(path) as run:
            if run is None:
                return RestoredRun(run=path.stem, alive=True)
            quotas, topics, folders = loadtest.RevertedQuotas(restored=run.changes), run.prefixes, run.folders
            if dry_run:
                topics = tuple(f"{prefix}*" for prefix in topics)
            else:
                quotas, topics, folders = _undone(run, settings_of)
            return RestoredRun(
                run=path.stem,
                scenario=run.header.scenario,
                store=run.header.store or None,
                quotas_restored=tuple(map(format_change, quotas.restored)),
                quotas_as_before=tuple(map(format_change, quotas.unchanged)),
                quotas_changed_by_others=tuple(map(format_change, quotas.foreign)),
                topics=topics,
                folders=folders,
            )
    except KafkaQuotasError as error:
        return RestoredRun(run=path.stem, error=f"{error.message}{f' ({error.hint})' if error.hint else ''}")


def _undone(
    run: loadtest.UnfinishedRun, settings_of: SettingsOf
) -> tuple[loadtest.RevertedQuotas, tuple[str, ...], tuple[str, ...]]:
    """Undo all that a run left behind, and return its quotas, and the topics and folders that are gone."""
    header, quotas, topics = run.header, loadtest.RevertedQuotas(), list[str]()
    settings = settings_of(None if header.command_config is None else Path(header.command_config))
    if run.changes and header.store:
        with closing(open_store(header.store, settings=settings)) as store:
            quotas = loadtest.revert_changes(store, run.changes)
    if run.prefixes and header.bootstrap:
        with closing(loadtest.TopicAdmin(header.bootstrap, settings=settings)) as admin:
            for prefix in run.prefixes:
                topics += admin.remove(prefix)
    folders = tuple(folder for folder in run.folders if remove_folder(Path(folder)))
    run.path.unlink(missing_ok=True)
    return quotas, tuple(topics), folders

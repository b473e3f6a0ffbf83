"""What a run undoes, whatever ends it: quotas, topics, its folder. Each is in the journal before it is done.

Ctrl-C and SIGTERM while something has to be put back: the first one ends the work, none ends the putting back.
"""

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.units import format_quota_value
from kafka_quotas.loadtest.run.journal import QUOTAS, RunJournal
from kafka_quotas.loadtest.run.quota_override import changes_to, make_changes, put_back
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.stores.store import Store

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalGuard:
    """What is done with signals while `interruptible` lasts. `seen`: there was one.

    `tell` is called with the number of those that came too late to change anything.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.seen = False
        self._held = False
        self._tell = tell

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals are noted and change nothing in this context: what it does is done to its end."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` at the first signal, unless they are held; later ones are told and ignored."""
        first, self.seen = not self.seen, True
        if first and not self._held:
            raise KeyboardInterrupt
        self._tell()


@contextmanager
def interruptible(tell: Callable[[], None]) -> Iterator[SignalGuard]:
    """Ctrl-C, SIGTERM and SIGHUP as one interruption, in the main thread; elsewhere they stay what they were."""
    interruption = SignalGuard(tell)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.signal(number, interruption.on_signal) for number in _SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


FOLDER_PREFIX: Final = "kafka-quotas-"
"""What the name of every folder begins with that a run makes for itself."""


@contextmanager
def run_folder(journal: RunJournal) -> Iterator[Path]:
    """A folder that is gone after the context, and that `load-test restore` removes where this can't."""
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        journal.folder(folder)
        try:
            yield folder
        finally:
            journal.settle(str(folder))


class Cleanup:
    """Undoes what a run has changed. What can't be undone is told and kept in `leftovers`; the journal keeps it too."""

    def __init__(self, *, interruption: SignalGuard, tell: Callable[[str], None]) -> None:
        self._interruption = interruption
        self._tell = tell
        self._leftovers: list[str] = []

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What could not be undone, one line each."""
        return tuple(self._leftovers)

    @contextmanager
    def quotas(
        self,
        journal: RunJournal,
        opened: Callable[[], Store],
        wanted: Iterable[tuple[Entity, Mapping[str, float | None]]],
    ) -> Iterator[None]:
        """The wanted quotas are stored while the context lasts. Raises what the store refuses with."""
        with closing(opened()) as store:
            changes = changes_to(store, wanted)
            journal.quotas(changes)
            try:
                make_changes(store, changes)
                yield
            finally:
                with self._interruption.held():
                    self._undo("quotas", lambda: self._put_back(journal, opened, changes))

    @contextmanager
    def topics(self, journal: RunJournal, opened: Callable[[], TopicAdmin], prefix: str) -> Iterator[None]:
        """Topics with this prefix may be made in the context, and are gone after it.

        Raises what `TopicAdmin` raises where the cluster can't be reached: then nothing was made, and nothing is owed.
        """
        with closing(opened()) as admin:
            admin.named(prefix)
        journal.topics(prefix)
        try:
            yield
        finally:
            with self._interruption.held():
                self._undo(f"topics {prefix}*", lambda: self._remove(journal, opened, prefix))

    def _put_back(self, journal: RunJournal, opened: Callable[[], Store], changes: tuple[PlannedChange, ...]) -> None:
        with closing(opened()) as store:
            back = put_back(store, changes)
        for change in back.foreign:
            self._tell(f"{told_change(change)} was changed by somebody else during the run and is left as it is")
        journal.settle(QUOTAS)

    def _remove(self, journal: RunJournal, opened: Callable[[], TopicAdmin], prefix: str) -> None:
        with closing(opened()) as admin:
            admin.remove(prefix)
        journal.settle(prefix)

    def _undo(self, what: str, undo: Callable[[], None]) -> None:
        """Nothing; it is undone, or told that it is not."""
        try:
            undo()
        except KafkaQuotasError as error:
            left = f"{what} could not be put back: {error.message}; kafka-quotas load-test restore tries again"
            self._leftovers.append(left)
            self._tell(left)


def told_change(change: PlannedChange) -> str:
    """A quota and the entity that it is on, for people: what it was before the run."""
    key = QUOTA_KEYS.get(change.key)
    before = "not set" if change.old is None else format_quota_value(key, change.old)
    return f"{change.key} of {change.entity} (before the run: {before})"


def remove_folder(path: Path) -> bool:
    """Whether a folder that a run had made for itself was there; it is gone now. Anything else is left alone."""
    is_ours = path.name.startswith(FOLDER_PREFIX) and path.parent == Path(tempfile.gettempdir())
    if not is_ours or path.is_symlink() or not path.is_dir():
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True

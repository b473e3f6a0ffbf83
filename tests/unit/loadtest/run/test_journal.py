"""What a run changes for its time: written down first, put back without harm to others, finished by another process."""

import fcntl
import json
import signal
from pathlib import Path
from typing import IO

import pytest
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.commands.load_test.cleanup import (
    FOLDER_PREFIX,
    SignalGuard,
    format_change,
    interruptible,
    remove_folder,
    restore,
)
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.run.journal import (
    QUOTAS,
    RunHeader,
    RunJournalError,
    changes_to,
    journals,
    make_changes,
    open_journal,
    revert_changes,
    unfinished_run,
)
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration, Store

RATE = "producer_byte_rate"
ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
CHANGE = PlannedChange(entity=ALICE, key=RATE, old=None, new=5e6)


def header(store: str = "") -> RunHeader:
    return RunHeader(run="00ff", scenario="isolation", started_ms=1, bootstrap="", store=store, command_config=None)


def rates(store: Store) -> dict[Entity, float]:
    snapshot = store.watch(None, timeout_s=240)
    assert snapshot is not None
    return {entry.entity: entry.quotas[RATE] for entry in snapshot.entries}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_store(tmp_path, {ALICE: {RATE: 1e6}})


def test_quotas_are_set_and_put_back(url: str) -> None:
    store = open_store(url)
    changes = changes_to(store, [(ALICE, {RATE: 2e6}), (BOB, {RATE: 3e6})])

    make_changes(store, changes)
    assert rates(store) == {ALICE: 2e6, BOB: 3e6}
    back = revert_changes(store, changes)

    assert (len(back.restored), back.unchanged, back.foreign) == (2, (), ())
    assert rates(store) == {ALICE: 1e6}
    assert len(revert_changes(store, changes).unchanged) == 2
    store.close()


def test_a_quota_that_was_changed_twice_becomes_what_it_was_before(url: str) -> None:
    store = open_store(url)
    first = changes_to(store, [(ALICE, {RATE: 2e6}), (BOB, {RATE: 2e6})])
    make_changes(store, first)
    second = changes_to(store, [(ALICE, {RATE: 3e6})])
    make_changes(store, second)

    back = revert_changes(store, [*first, *second])

    assert (len(back.restored), back.foreign) == (2, ())
    assert rates(store) == {ALICE: 1e6}
    store.close()


def test_what_holds_already_is_no_change(url: str) -> None:
    store = open_store(url)
    assert changes_to(store, [(ALICE, {RATE: 1e6}), (BOB, {RATE: None})]) == ()
    store.close()


def test_what_somebody_else_has_changed_meanwhile_is_theirs(url: str) -> None:
    store = open_store(url)
    changes = changes_to(store, [(ALICE, {RATE: 2e6}), (BOB, {RATE: 3e6})])
    make_changes(store, changes)
    store.alter([Alteration(entity=BOB, changes={RATE: 9e6})])

    back = revert_changes(store, changes)

    assert [change.entity for change in back.foreign] == [BOB]
    assert rates(store) == {ALICE: 1e6, BOB: 9e6}
    store.close()


def test_a_run_that_settles_everything_leaves_no_journal(tmp_path: Path) -> None:
    with open_journal(tmp_path, header()) as journal:
        journal.topics("p-")
        journal.quotas([CHANGE])
        journal.folder(Path("/tmp/kafka-quotas-x"))
        assert len(journals(tmp_path)) == 1
        journal.settle("p-")
        journal.settle(QUOTAS)
        journal.settle("/tmp/kafka-quotas-x")
    assert journals(tmp_path) == ()


def test_quotas_announced_twice_are_owed_until_both_are_settled(tmp_path: Path) -> None:
    with open_journal(tmp_path, header()) as journal:
        journal.quotas([CHANGE])
        journal.quotas([CHANGE])
        journal.settle(QUOTAS)
    assert len(journals(tmp_path)) == 1


def test_what_is_owed_can_be_read_when_the_run_is_gone_and_not_before(tmp_path: Path) -> None:
    with open_journal(tmp_path, header("local:q.db")) as journal:
        journal.topics("p-")
        journal.quotas([CHANGE])
        with unfinished_run(journal.path) as unfinished:
            assert unfinished is None
    (path,) = journals(tmp_path)

    with unfinished_run(path) as unfinished:
        assert unfinished is not None
        assert unfinished.header == header("local:q.db")
        assert (unfinished.changes, unfinished.prefixes) == ((CHANGE,), ("p-",))


def test_no_restore_finds_a_journal_before_its_run_has_locked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def restore_first(file: IO[bytes], operation: int) -> None:
        monkeypatch.undo()
        restore(tmp_path, settings_of=lambda _: StoreSettings())
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", restore_first)
    with open_journal(tmp_path, header()) as journal:
        assert journals(tmp_path) == (journal.path,)
        assert (tmp_path / "00ff.jsonl").read_bytes().startswith(b'{"kind": "run"')


def test_a_line_cut_short_announced_what_was_never_done(tmp_path: Path) -> None:
    with open_journal(tmp_path, header()) as journal:
        journal.topics("p-")
    (path,) = journals(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"kind": "quotas", "chan')

    with unfinished_run(path) as unfinished:
        assert unfinished is not None
        assert (unfinished.changes, unfinished.prefixes) == ((), ("p-",))


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"kind": "run", "schema": "other/1"}\n', b'{"kind": "topics"}\n'])
def test_a_damaged_journal_is_told_and_kept(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "1.jsonl"
    path.write_bytes(line)

    with pytest.raises(RunJournalError, match="is damaged"), unfinished_run(path):
        pass
    (run,) = restore(tmp_path, settings_of=lambda _: StoreSettings())

    assert run.error is not None
    assert path.exists()


def test_restore_puts_quotas_back_and_removes_what_is_ours(tmp_path: Path, url: str) -> None:
    store = open_store(url)
    changes = changes_to(store, [(ALICE, {RATE: 2e6})])
    with open_journal(tmp_path / "journals", header(url)) as journal:
        journal.quotas(changes)
        journal.folder(Path("/etc"))
        make_changes(store, changes)

    (announced,) = restore(tmp_path / "journals", settings_of=lambda _: StoreSettings(), dry_run=True)
    assert rates(store) == {ALICE: 2e6}
    (done,) = restore(tmp_path / "journals", settings_of=lambda _: StoreSettings())

    assert announced.quotas_restored == done.quotas_restored == tuple(map(format_change, changes))
    assert done.folders == ()
    assert rates(store) == {ALICE: 1e6}
    assert restore(tmp_path / "journals", settings_of=lambda _: StoreSettings()) == ()
    store.close()


def test_only_folders_of_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    ours, theirs = tmp_path / f"{FOLDER_PREFIX}1", tmp_path / "theirs"
    link = tmp_path / f"{FOLDER_PREFIX}link"
    for folder in (ours, theirs):
        folder.mkdir()
    link.symlink_to(theirs)

    assert [remove_folder(folder) for folder in (ours, theirs, link, tmp_path / f"{FOLDER_PREFIX}no")] == [
        *(True, False, False, False)
    ]
    assert [ours.exists(), theirs.exists()] == [False, True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_work_and_none_the_putting_back(number: signal.Signals) -> None:
    told: list[str] = []
    with interruptible(lambda: told.append("late")) as signals:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
        with signals.held():
            signal.raise_signal(number)
    assert (told, signals.seen) == (["late", "late"], True)
    with interruptible(lambda: told.append("held")) as signals, signals.held():
        signal.raise_signal(number)
    assert told[-1] == "held"


def test_an_interrupt_that_a_library_replaces_by_an_error_is_one_all_the_same() -> None:
    def interrupted_import() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("Module not found") from None

    def failed_import(guard: SignalGuard) -> None:
        with guard.held():
            signal.raise_signal(signal.SIGTERM)
        raise ImportError("Module not found")

    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None):
        interrupted_import()
    with pytest.raises(ImportError), interruptible(lambda: None) as signals:
        failed_import(signals)


def test_an_interrupt_that_was_held_or_dropped_is_raised_by_the_next_check() -> None:
    with interruptible(lambda: None) as signals:
        signals.check()
        with signals.held():
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signals.check()


def test_an_interrupt_waits_for_the_end_of_what_is_deferred() -> None:
    done: list[str] = []

    def work(signals: SignalGuard) -> None:
        with signals.deferred():
            done.append("first")
        with signals.deferred():
            signal.raise_signal(signal.SIGTERM)
            done.append("second")
        done.append("third")

    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None) as guard:
        work(guard)
    assert done == ["first", "second"]


def test_lines_are_whole_documents(tmp_path: Path) -> None:
    with open_journal(tmp_path, header()) as journal:
        journal.quotas([CHANGE])
        kinds = [json.loads(line)["kind"] for line in journal.path.read_text(encoding="utf-8").splitlines()]
        assert kinds == ["run", "quotas"]
        assert journal.path.stat().st_mode & 0o777 == 0o600

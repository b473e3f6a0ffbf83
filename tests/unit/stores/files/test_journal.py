"""The journal: its files, its lines, and what they say is to be undone."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.quotas.alter import FIRST_CHUNK
from kafka_quotas.commands.quotas.journal import contents_between, find_entries, inverse_of, merged_changes, undo_due
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.clock import format_instant, parse_instant
from kafka_quotas.core.errors import StoreError, UnconfirmedError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.address import parse_store_url
from kafka_quotas.stores.files import journal as journal_module
from kafka_quotas.stores.files.journal import (
    FULL_BYTES,
    Journal,
    JournalEntry,
    JournalWriter,
    due_undos,
    entry_from,
    entry_line,
    lines_from_end,
    new_entry_id,
    stores_with_undos,
)
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.store import Alteration, AlterationResult

ODD = Entity.of(user='a\nb/"<default>\U0001f600', client_id=None)
PLACE = parse_store_url("zk://z:2181")
CHANGE = PlannedChange(entity=ODD, key="producer_byte_rate", old=None, new=float("nan"))


def entry(entry_id: str = "i1", **attributes: object) -> JournalEntry:
    place = {"time_ms": 1_700_000_000_123, "store_url": "zk://z:2181", "changes": (CHANGE,)}
    return JournalEntry(entry_id=entry_id, command="alter", user="ops", **(place | attributes))  # type: ignore[arg-type]


def test_instants_are_read_back() -> None:
    assert format_instant(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert parse_instant("2023-11-14T22:13:20.123Z") == 1_700_000_000_123
    assert parse_instant("2023-11-15T00:13:20.123+02:00") == 1_700_000_000_123
    with pytest.raises(ValueError, match="has no zone"):
        parse_instant("2023-11-14T22:13:20")


def test_an_id_sorts_by_time() -> None:
    assert new_entry_id(1_700_000_000_123, b"\x01\x02\xff") == "20231114-221320-0102ff"


def test_an_entry_is_one_line_and_read_back() -> None:
    whole = entry(reason="because\nof that", undo_at_ms=1_700_000_001_000, reverts="i0")
    line = entry_line(whole)
    assert line.count("\n") == 1
    assert repr(entry_from(line)) == repr(whole)  # NaN is unlike itself
    document = json.loads(entry_line(entry()))
    assert list(document) == ["id", "time", "command", "user", "store", "changes"]
    assert document["changes"] == [{"entity": ODD.to_mapping(), "key": CHANGE.key, "old": None, "new": "NaN"}]


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "1", "{}", '{"id": 1}', '{"id":"a","time":"x"}', entry_line(entry()).replace('"ops"', "7")],
)
def test_a_damaged_line_is_no_entry(line: str) -> None:
    with pytest.raises(UsageError, match="no entry of a journal"):
        entry_from(line)


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert Journal(tmp_path / "journal.jsonl").read().entries == ()
    assert list(tmp_path.iterdir()) == []


def test_a_line_cut_short_damages_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    journal.append(entry("i1"))
    with journal.path.open("a") as file:
        file.write(entry_line(entry("cut"))[:50])
    journal.append(entry("i2"))
    content = journal.read()
    assert [each.entry_id for each in content.entries] == ["i1", "i2"]
    assert content.damaged_lines == 1
    assert journal.path.stat().st_mode & 0o777 == 0o600


WRITER = """
import sys
from pathlib import Path
from kafka_quotas.stores.files.journal import Journal, JournalEntry
path, name, full_bytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
told = {"command": "alter", "user": "ops", "store_url": "local:/x", "reason": "x" * 5000}
sys.stdin.readline()
for number in range(200):
    entry = JournalEntry(entry_id=f"{name}-{number}", time_ms=0, changes=(), **told)
    Journal(path, full_bytes=full_bytes, files_kept=99).append(entry)
"""


@pytest.mark.parametrize(("full_bytes", "least_files"), [(FULL_BYTES, 1), (100_000, 11)])
def test_processes_that_write_and_put_aside_at_once_lose_nothing(
    tmp_path: Path, full_bytes: int, least_files: int
) -> None:
    path = tmp_path / "journal.jsonl"
    arguments = [[str(path), name, str(full_bytes)] for name in "abcd"]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, *each], stdin=subprocess.PIPE) for each in arguments]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    assert [writer.wait(timeout=240) for writer in writers] == [0, 0, 0, 0]
    content = Journal(path).read()
    assert {each.entry_id for each in content.entries} == {f"{name}-{n}" for name in "abcd" for n in range(200)}
    assert (len(content.entries), content.damaged_lines) == (800, 0)
    assert len(list(tmp_path.iterdir())) >= least_files


def recorder(path: Path, warnings: list[str]) -> JournalWriter:
    return JournalWriter(
        journal=Journal(path),
        clock=VirtualClock(1_700_000_000_123),
        entry_id="i1",
        command="alter",
        user="ops",
        warn=warnings.append,
        reason="why",
    )


def test_a_recorder_writes_what_a_run_changed(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert recorder(tmp_path / "j", warnings).record("local:/x", [CHANGE]) is True
    (found,) = Journal(tmp_path / "j").read().entries
    assert (found.store_url, found.reason, found.time_ms, warnings) == ("local:/x", "why", 1_700_000_000_123, [])


@pytest.mark.parametrize("path", ["/dev/full", "/proc/version", "/proc/none/journal.jsonl"])
def test_a_journal_that_cannot_be_written_costs_a_warning(path: str) -> None:
    if not Path(path).parent.parent.exists():
        pytest.skip(f"no {path} on this system")
    warnings: list[str] = []
    assert recorder(Path(path), warnings).record("local:/x", [CHANGE], undo_at_ms=5) is False
    assert warnings[0].startswith(
        "the change was made, but it is not in the journal, nor that it is to be undone: cannot write the journal"
    )


def test_an_alter_is_not_lost_with_its_journal(tmp_path: Path) -> None:
    """A full disk under the journal: the change is made, its line is printed, and the warning is told."""
    options = ("--store", f"local:{tmp_path}/q.db", "--user", "a", "--add-config", "producer_byte_rate=1")
    code, out, err = run_cli("alter", *options, "--for", "2h", environment={"KAFKA_QUOTAS_JOURNAL": "/dev/full"})
    assert (code, out) == (0, f"user a in local:{tmp_path}/q.db: producer_byte_rate not set -> 1 B/s\n")
    assert err.startswith("warning: the change was made, but it is not in the journal, nor that it is to be undone")
    assert "note: to be undone" not in err


def test_an_alter_is_in_the_journal_with_its_reason(tmp_path: Path) -> None:
    path, at = tmp_path / "journal.jsonl", ("--store", f"local:{tmp_path}/q.db", "--user", "a")
    chosen = {"KAFKA_QUOTAS_JOURNAL": str(path)}
    for options in (
        ("--add-config", "producer_byte_rate=1", "--reason", "ticket 42"),
        ("--add-config", "producer_byte_rate=2", "--dry-run"),
        ("--add-config", "producer_byte_rate=0"),
        ("--delete-config", "producer_byte_rate"),
    ):
        run_cli("alter", *at, *options, environment=chosen)
    entries = Journal(path).read().entries
    values = [(change.old, change.new) for each in entries for change in each.changes]
    assert values == [(None, 1.0), (1.0, None)]
    assert [each.reason for each in entries] == ["ticket 42", None]
    assert {each.store_url for each in entries} == {f"local:{tmp_path}/q.db"}


def test_entries_are_found_by_id_its_beginning_and_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(UsageError, match="the journal has no change of "):
        find_entries(journal, "last", PLACE)
    for entry_id in ("20230101-a", "20230102-b", "20230102-b", "20230102-c"):
        journal.append(entry(entry_id))
    assert [each.entry_id for each in find_entries(journal, "20230101", PLACE)] == ["20230101-a"]
    assert [each.entry_id for each in find_entries(journal, "20230102-b", PLACE)] == ["20230102-b"] * 2
    assert [each.entry_id for each in find_entries(journal, "last", PLACE)] == ["20230102-c"]
    for unknown in ("", "x"):
        with pytest.raises(UsageError, match="has no entry"):
            find_entries(journal, unknown, PLACE)
    with pytest.raises(UsageError, match="several entries begin"):
        find_entries(journal, "2023", PLACE)
    assert [each.entry_id for each in journal.read(limit=1).entries] == ["20230102-c"]


def test_a_journal_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "journal.jsonl")  # noqa: PTH102 - the name of a file
    with pytest.raises(StoreError, match="cannot read the journal"):
        Journal(tmp_path / "journal.jsonl").read()


def test_what_an_interrupted_apply_has_done_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [{"entity": {"user": f"u{number:03}"}, "quotas": {"producer_byte_rate": 1}} for number in range(300)]
    (tmp_path / "quotas.json").write_text(json.dumps(declared))
    alter, calls = LocalStore.alter, []

    def interrupted(store: LocalStore, entries: Sequence[Alteration], **options: bool) -> list[AlterationResult]:
        calls.append(len(entries))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return alter(store, entries, **options)

    monkeypatch.setattr(LocalStore, "alter", interrupted)
    chosen = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    at = ("--store", f"local:{tmp_path}/q.db")
    assert run_cli("apply", str(tmp_path / "quotas.json"), *at, environment=chosen)[0] == 130
    (made,) = Journal(tmp_path / "journal").read().entries
    assert calls == [FIRST_CHUNK, 300 - FIRST_CHUNK]
    assert len(made.changes) == FIRST_CHUNK
    monkeypatch.undo()
    assert run_cli("revert", "last", *at, "--yes", environment=chosen)[0] == 0
    assert json.loads(run_cli("describe", *at, "--output", "json")[1])["entries"] == []


def test_a_full_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", full_bytes=1000, files_kept=2)
    for number in range(60):
        journal.append(entry(f"i{number:02}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j", "j.1", "j.2"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1500
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    ids = [each.entry_id for each in journal.read().entries]
    assert ids == [f"i{number:02}" for number in range(60 - len(ids), 60)]
    assert len(ids) > 6
    assert [each.entry_id for each in journal.read(limit=5).entries] == ids[-5:]


def test_what_is_to_be_undone_outlasts_any_number_of_later_changes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", full_bytes=1000, files_kept=2)
    journal.append(entry("early", undo_at_ms=5))
    others = PlannedChange(entity=Entity.of(user="other"), key="producer_byte_rate", old=1.0, new=2.0)
    for number in range(60):
        journal.append(replace(entry(f"i{number:02}"), changes=(others,)))
    (undo,) = due_undos(journal.since_oldest_pending(), store_url="zk://z:2181", now_ms=6)
    assert undo.entry_id == "early"
    journal.append(entry("back", reverts="early"))
    assert journal.since_oldest_pending() == ()
    for number in range(60):
        journal.append(replace(entry(f"k{number:02}"), changes=(others,)))
    journal.append(entry("last"))
    assert "early" not in {each.entry_id for each in journal.read().entries}


def test_the_newest_entries_are_found_without_reading_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "j")
    first_ms = parse_instant("2026-01-01T00:00:00Z")
    hour_ms = 3_600_000
    for number in range(500):
        now_ms = first_ms + number * hour_ms
        journal.append(entry(new_entry_id(now_ms, bytes(3)), time_ms=now_ms))
    parsed: list[str] = []
    real = journal_module.entry_from

    def counted(line: str) -> JournalEntry:
        parsed.append(line)
        return real(line)

    monkeypatch.setattr(journal_module, "entry_from", counted)
    (last,) = find_entries(journal, "last", PLACE)
    assert len(parsed) <= 4
    assert [each.entry_id for each in find_entries(journal, last.entry_id, PLACE)] == [last.entry_id]
    assert len(journal.read(limit=3).entries) == 3
    assert journal.since_oldest_pending() == ()
    assert len(parsed) <= 12


def test_lines_longer_than_a_piece_are_read_from_the_end(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"a", b"a\n", b"a\n\nb", b"x" * 700_000 + b"\n" + b"y" * 300_000 + b"\nz\n"):
        path = tmp_path / "lines"
        path.write_bytes(content)
        with path.open("rb") as file:
            assert list(lines_from_end(file)) == [line for line in reversed(content.split(b"\n")) if line]


class TestUnconfirmed:
    """What was sent and never confirmed is in the journal as such, whichever command sent it."""

    ALICE = Entity.of(user="alice")
    ERROR = UnconfirmedError("the answer was lost")

    def entries(self, path: Path) -> list[tuple[bool, list[str]]]:
        found = Journal(path).read().entries
        return [(each.confirmed, [str(change.entity) for change in each.changes]) for each in found]

    @pytest.fixture
    def lossy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Local stores that make each change and lose the answer about `alice`.

        `bob` is refused.
        """
        real = LocalStore.alter

        def alter(
            store: LocalStore, entries: Sequence[Alteration], *, validate_only: bool = False
        ) -> list[AlterationResult]:
            taken = [each for each in entries if each.entity.user != "bob"]
            done = {each.entity: each.error for each in real(store, taken, validate_only=validate_only)}
            if not validate_only:
                done |= {entity: self.ERROR for entity in done if entity.user == "alice"}
            refused = StoreError("no")
            return [AlterationResult(entity=each.entity, error=done.get(each.entity, refused)) for each in entries]

        monkeypatch.setattr(LocalStore, "alter", alter)

    def test_of_alter(self, tmp_path: Path, lossy: None) -> None:
        chosen = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "j")}
        at = ("--store", f"local:{tmp_path}/q.db", "--add-config", "producer_byte_rate=1000000")
        code, _, err = run_cli("alter", *at, "--user", "alice", "--for", "2h", environment=chosen)
        assert (code, err.splitlines()[0]) == (1, "error: the answer was lost")
        assert run_cli("alter", *at, "--user", "bob", environment=chosen)[0] == 1
        assert self.entries(tmp_path / "j") == [(False, ["user alice"])]
        _, out, _ = run_cli("revert", "--list", environment=chosen)
        assert "not confirmed" in out

    def test_of_apply_and_migrate(self, tmp_path: Path, lossy: None) -> None:
        chosen = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "j")}
        declared = [{"entity": {"user": user}, "quotas": {"producer_byte_rate": 1e6}} for user in ("alice", "bob", "c")]
        (tmp_path / "q.json").write_text(json.dumps(declared))
        run_cli("apply", str(tmp_path / "q.json"), "--store", f"local:{tmp_path}/q.db", environment=chosen)
        assert self.entries(tmp_path / "j") == [(True, ["user c"]), (False, ["user alice"])]
        stores = ("--from", f"local:{tmp_path}/q.db", "--to", f"local:{tmp_path}/other.db")
        run_cli("migrate", *stores, environment=chosen)
        assert self.entries(tmp_path / "j")[2:] == [(True, ["user c"]), (False, ["user alice"])]

    def test_undoing_that_was_not_confirmed_is_tried_again(self, tmp_path: Path, lossy: None) -> None:
        store = LocalStore(tmp_path / "q.db")
        changed = PlannedChange(entity=self.ALICE, key="producer_byte_rate", old=None, new=2.0)
        journal = Journal(tmp_path / "j")
        due = replace(entry("due", undo_at_ms=5), changes=(changed,), store_url=store.url)
        journal.append(due)
        store.alter([Alteration(entity=self.ALICE, changes={"producer_byte_rate": 2.0})])
        for expected in ((False, ["user alice"]), (True, ["user alice"])):
            entries = journal.since_oldest_pending()
            assert entries[0] == due
            undo_due(store, entries, recorder=recorder(tmp_path / "j", []))
            assert self.entries(tmp_path / "j")[-1] == expected
        assert journal.since_oldest_pending() == ()
        store.close()


ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
KEY = "producer_byte_rate"
STORE = "local:/x"


def change(old: float | None, new: float | None, entity: Entity = ALICE) -> PlannedChange:
    return PlannedChange(entity=entity, key=KEY, old=old, new=new)


def temporary(
    entry_id: str, *changes: PlannedChange, until: int | None = None, reverts: str | None = None
) -> JournalEntry:
    return entry(entry_id, changes=changes, store_url=STORE, undo_at_ms=until, reverts=reverts)


FOR_A_WHILE = temporary("a", change(10, 20), until=100)
BOTH = temporary("a", change(10, 20), change(1, 2, BOB), until=100)
ON_TOP = temporary("b", change(20, 30), until=200)


@pytest.mark.parametrize(
    ("entries", "now_ms", "expected"),
    [
        ([FOR_A_WHILE], 99, []),
        ([FOR_A_WHILE], 100, [("a", (change(10, 20),))]),
        ([replace(FOR_A_WHILE, store_url="local:/y")], 100, []),
        # What is reverted is not due any more, but the rest is.
        ([BOTH, temporary("r", change(20, 10), reverts="a")], 100, [("a", (change(1, 2, BOB),))]),
        ([BOTH, temporary("r", change(20, 10), change(2, 1, BOB), reverts="a")], 100, []),
        # A later change that stays settles it, even to the same value, and one that was reverted does not.
        ([FOR_A_WHILE, temporary("b", change(20, 20))], 100, []),
        ([FOR_A_WHILE, temporary("b", change(20, 30))], 100, []),
        (
            [FOR_A_WHILE, temporary("b", change(20, 30)), temporary("r", change(30, 20), reverts="b")],
            100,
            [("a", (change(10, 20),))],
        ),
        # Changes on top of one another are undone once the last is due, the newest first.
        ([FOR_A_WHILE, ON_TOP], 100, []),
        ([FOR_A_WHILE, ON_TOP], 200, [("b", (change(20, 30),)), ("a", (change(10, 20),))]),
    ],
)
def test_changes_are_due_at_their_time_unless_something_settled_them(
    entries: list[JournalEntry], now_ms: int, expected: list[tuple[str, tuple[PlannedChange, ...]]]
) -> None:
    undos = due_undos(entries, store_url=STORE, now_ms=now_ms)

    assert [(undo.entry_id, undo.changes) for undo in undos] == expected


def test_stores_with_undos_are_those_of_changes_that_are_due() -> None:
    assert stores_with_undos([FOR_A_WHILE], now_ms=99) == ()
    assert stores_with_undos([FOR_A_WHILE, temporary("b", change(1, 2, BOB))], now_ms=100) == (STORE,)


@pytest.mark.parametrize(
    ("found", "force", "expected"),
    [
        (20.0, False, ("to_make", change(20, 10))),
        (10.0, False, ("back_already", change(10, 20))),
        (30.0, False, ("changed_since", (change(10, 20), 30.0))),
        (30.0, True, ("to_make", change(30, 10))),
        (None, False, ("changed_since", (change(10, 20), None))),
    ],
)
def test_undoing_depends_on_what_is_there_now(found: float | None, force: bool, expected: tuple[str, object]) -> None:
    stored = {} if found is None else {ALICE: {KEY: found}}
    result = inverse_of([change(10, 20)], stored, force=force)
    kinds = {name: getattr(result, name) for name in ("to_make", "back_already", "changed_since")}
    assert {name: list(value) for name, value in kinds.items() if value} == {expected[0]: [expected[1]]}


def test_entries_of_one_run_are_one_change_per_quota() -> None:
    entries = temporary("a", change(1, 2)), temporary("a", change(2, 3), change(5, None, BOB))
    assert merged_changes(entries) == (change(1, 3), change(5, None, BOB))


def test_what_a_store_held_meanwhile_is_what_it_holds_without_its_later_changes() -> None:
    entries = [
        replace(temporary("before", change(None, 5)), time_ms=100),
        replace(temporary("set", change(5, 10), change(None, 7, BOB)), time_ms=200),
        replace(temporary("elsewhere", change(10, 99)), time_ms=250, store_url="local:/y"),
        replace(temporary("lost", change(10, 40)), time_ms=260, confirmed=False),
        replace(temporary("removed", change(7, None, BOB)), time_ms=300),
        replace(temporary("later", change(10, 20)), time_ms=500),
    ]
    stored = {ALICE: {KEY: 20.0, "consumer_byte_rate": 1.0}}

    found = contents_between(stored, reversed(entries), store_url=STORE, first_ms=150, last_ms=400)

    alice = {KEY: 10, "consumer_byte_rate": 1.0}
    assert [(at_ms, {entity: quotas for entity, quotas in content.items() if quotas}) for at_ms, content in found] == [
        (150, {ALICE: {KEY: 5, "consumer_byte_rate": 1.0}}),
        (200, {ALICE: alice, BOB: {KEY: 7}}),
        (260, {ALICE: alice, BOB: {KEY: 7}}),
        (300, {ALICE: alice}),
    ]
    assert stored == {ALICE: {KEY: 20.0, "consumer_byte_rate": 1.0}}

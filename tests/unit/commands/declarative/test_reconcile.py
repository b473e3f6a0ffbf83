"""apply --watch: rounds, drift, temporary changes, and what is told about them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.whole_run import run_whole

from kafka_quotas.cli.declarative.apply import round_lines
from kafka_quotas.commands.declarative.apply import DesiredState
from kafka_quotas.commands.declarative.reconcile import Reconciler
from kafka_quotas.commands.quotas.alter import FIRST_CHUNK, alter
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.enforcement import exposition
from kafka_quotas.stores.files.journal import Journal, JournalWriter
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.store import Alteration, AlterationResult

PRODUCE = "producer_byte_rate"
ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")


class Bench:
    """A file, a local store, a journal and a clock that moves only when told."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(1_700_000_000_000)
        self.file = folder / "q.yaml"
        self.declare(7)
        self.store = LocalStore(folder / "quotas.db")
        self.journal = Journal(folder / "journal.jsonl")
        self.warnings: list[str] = []

    def declare(self, value: object) -> None:
        self.file.write_text(f"- {{entity: {{user: alice}}, quotas: {{producer_byte_rate: {value}}}}}\n")

    def recorder(self, entry_id: str = "20260101-000000-000000") -> JournalWriter:
        return JournalWriter(
            journal=self.journal,
            clock=self.clock,
            entry_id=entry_id,
            command="apply",
            user="ops",
            warn=self.warnings.append,
        )

    def reconciler(self, *, dry_run: bool = False) -> Reconciler:
        desire = DesiredState(paths=[str(self.file)])
        return Reconciler(self.store, desire, recorder=self.recorder(), dry_run=dry_run, allow_invalid=False)

    def set(self, entity: Entity, value: float) -> None:
        (result,) = self.store.alter([Alteration(entity=entity, changes={PRODUCE: value})])
        assert result.error is None

    def stored(self) -> dict[Entity, float]:
        return {entry.entity: entry.quotas[PRODUCE] for entry in self.store.describe(EVERYTHING)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_drift_is_found_corrected_counted_and_kept_in_the_journal(bench: Bench) -> None:
    reconciler = bench.reconciler()
    assert round_lines(reconciler.round()) == ["changed 1 quota"]
    assert round_lines(reconciler.round()) == []
    bench.set(ALICE, 99.0)
    bench.set(BOB, 1.0)
    done = reconciler.round()
    assert round_lines(done) == ["changed 1 quota"]
    assert bench.stored() == {ALICE: 7.0, BOB: 1.0}
    assert reconciler.figures == {
        "drift": 1,
        "drift_undeclared": 1,
        "drift_failed_entities": 0,
        "drift_corrected": 2,
        "reconcile_rounds": 3,
        "reconcile_failed_rounds": 0,
        "reconcile_last_success_timestamp_seconds": 1_700_000_000.0,
    }
    entries = bench.journal.read().entries
    assert [len(entry.changes) for entry in entries] == [1, 1]
    assert entries[0].entry_id != entries[1].entry_id


def test_a_changed_file_counts_from_the_next_round_and_a_broken_one_changes_nothing(bench: Bench) -> None:
    reconciler = bench.reconciler()
    assert reconciler.round().result is not None
    bench.declare("much")
    (line,) = round_lines(reconciler.round())
    assert line.startswith("nothing was changed: ")
    assert "not a size: 'much'" in line
    assert reconciler.figures["reconcile_failed_rounds"] == 1
    bench.declare(8)
    assert round_lines(reconciler.round()) == ["changed 1 quota"]
    assert bench.stored() == {ALICE: 8.0}


def test_with_dry_run_drift_is_told_and_left(bench: Bench) -> None:
    reconciler = bench.reconciler(dry_run=True)
    for _ in range(2):
        assert round_lines(reconciler.round()) == ["would change 1 quota"]
    assert reconciler.figures["drift"] == 1
    assert reconciler.figures["drift_corrected"] == 0
    assert bench.stored() == {}


def test_what_was_changed_for_a_while_stays_that_long_and_is_taken_back_then(bench: Bench) -> None:
    reconciler = bench.reconciler()
    reconciler.round()
    bench.clock.advance(1000)
    alter(
        bench.store,
        entity=ALICE,
        changes={PRODUCE: 100.0},
        recorder=bench.recorder("20260101-000001-000001"),
        for_ms=60_000,
    )
    bench.clock.advance(59_999)
    assert round_lines(reconciler.round()) == []
    assert bench.stored() == {ALICE: 100.0}
    bench.clock.advance(1)
    assert round_lines(reconciler.round()) == ["1 temporary quotas taken back"]
    assert bench.stored() == {ALICE: 7.0}
    assert round_lines(reconciler.round()) == []


def test_a_quota_for_a_while_within_another_one_gives_the_rest_of_its_time_back(bench: Bench) -> None:
    reconciler = bench.reconciler()
    reconciler.round()
    for number, (value, for_ms) in enumerate([(100.0, 7_200_000), (50.0, 1_800_000)], start=1):
        bench.clock.advance(1000)
        recorder = bench.recorder(f"20260101-000001-00000{number}")
        alter(bench.store, entity=ALICE, changes={PRODUCE: value}, recorder=recorder, for_ms=for_ms)
    bench.clock.advance(1_800_000)
    assert round_lines(reconciler.round()) == ["1 temporary quotas taken back"]
    assert bench.stored() == {ALICE: 100.0}
    assert round_lines(reconciler.round()) == []
    assert bench.stored() == {ALICE: 100.0}


def test_the_first_round_in_order_is_told(bench: Bench) -> None:
    bench.set(ALICE, 7.0)
    assert round_lines(bench.reconciler().round()) == ["up to date"]


def test_drift_is_served_as_prometheus_figures(bench: Bench) -> None:
    reconciler = bench.reconciler(dry_run=True)
    assert b"kafka_quotas_reconcile_rounds 0.0\n" in run_whole(exposition(reconciler.families()))
    reconciler.round()
    text = run_whole(exposition(reconciler.families())).decode()
    assert "kafka_quotas_drift 1.0\n" in text
    assert "kafka_quotas_reconcile_rounds 1.0\n" in text
    assert "kafka_quotas_reconcile_last_success_timestamp_seconds 1.7e+09\n" in text


@pytest.fixture(autouse=True)
def _closing(bench: Bench) -> object:
    yield
    bench.store.close()
    assert bench.warnings == []


def test_a_round_that_is_cut_short_has_in_the_journal_what_it_did(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entities = "".join(
        f"- {{entity: {{user: u{number}}}, quotas: {{{PRODUCE}: 1}}}}\n" for number in range(FIRST_CHUNK + 1)
    )
    bench.file.write_text(entities)
    alter = bench.store.alter

    def interrupted(entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        if len(bench.stored()):
            raise KeyboardInterrupt
        return alter(entries, validate_only=validate_only)

    monkeypatch.setattr(bench.store, "alter", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.reconciler().round()
    (entry,) = bench.journal.read().entries
    assert len(entry.changes) == FIRST_CHUNK == len(bench.stored())

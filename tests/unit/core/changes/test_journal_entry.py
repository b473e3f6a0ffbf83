"""What of a journal is due to be undone, and what undoing comes to."""

from dataclasses import replace

import pytest

from kafka_quotas.core.changes.journal_entry import (
    JournalEntry,
    contents_between,
    due_undos,
    inverse_of,
    merged_changes,
    stores_with_undos,
)
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import Entity

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
KEY = "producer_byte_rate"
STORE = "local:/x"


def change(old: float | None, new: float | None, entity: Entity = ALICE) -> PlannedChange:
    return PlannedChange(entity=entity, key=KEY, old=old, new=new)


def entry(entry_id: str, *changes: PlannedChange, until: int | None = None, reverts: str | None = None) -> JournalEntry:
    return JournalEntry(
        entry_id=entry_id,
        time_ms=0,
        command="alter",
        user="ops",
        store_url=STORE,
        changes=changes,
        undo_at_ms=until,
        reverts=reverts,
    )


def due(*entries: JournalEntry, now_ms: int) -> list[tuple[str, tuple[PlannedChange, ...]]]:
    return [(undo.entry_id, undo.changes) for undo in due_undos(entries, store_url=STORE, now_ms=now_ms)]


def test_a_change_is_due_at_its_time_and_not_before() -> None:
    for_a_while = entry("a", change(10, 20), until=100)
    assert due(for_a_while, now_ms=99) == []
    assert due(for_a_while, now_ms=100) == [("a", (change(10, 20),))]
    assert stores_with_undos([for_a_while], now_ms=99) == ()
    assert stores_with_undos([for_a_while, entry("b", change(1, 2, BOB))], now_ms=100) == (STORE,)


def test_what_is_reverted_is_not_due_any_more_but_the_rest_is() -> None:
    both = entry("a", change(10, 20), change(1, 2, BOB), until=100)
    assert due(both, entry("r", change(20, 10), reverts="a"), now_ms=100) == [("a", (change(1, 2, BOB),))]
    whole = entry("r", change(20, 10), change(2, 1, BOB), reverts="a")
    assert due(both, whole, now_ms=100) == []


def test_a_later_change_that_stays_settles_it_even_to_the_same_value() -> None:
    for new in (20, 30):
        assert due(entry("a", change(10, 20), until=100), entry("b", change(20, new)), now_ms=100) == []


def test_a_later_change_that_was_reverted_settles_nothing() -> None:
    entries = (
        entry("a", change(10, 20), until=100),
        entry("b", change(20, 30)),
        entry("r", change(30, 20), reverts="b"),
    )
    assert due(*entries, now_ms=100) == [("a", (change(10, 20),))]


def test_changes_on_top_of_one_another_are_undone_newest_first() -> None:
    entries = entry("a", change(10, 20), until=100), entry("b", change(20, 30), until=200)
    assert due(*entries, now_ms=100) == []  # b is still in force
    assert due(*entries, now_ms=200) == [("b", (change(20, 30),)), ("a", (change(10, 20),))]


def test_entries_of_other_stores_are_left_out() -> None:
    assert due_undos([entry("a", change(1, 2), until=1)], store_url="local:/y", now_ms=5) == ()


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
    entries = entry("a", change(1, 2)), entry("a", change(2, 3), change(5, None, BOB))
    assert merged_changes(entries) == (change(1, 3), change(5, None, BOB))


def test_what_a_store_held_meanwhile_is_what_it_holds_without_its_later_changes() -> None:
    entries = [
        replace(entry("before", change(None, 5)), time_ms=100),
        replace(entry("set", change(5, 10), change(None, 7, BOB)), time_ms=200),
        replace(entry("elsewhere", change(10, 99)), time_ms=250, store_url="local:/y"),
        replace(entry("lost", change(10, 40)), time_ms=260, confirmed=False),
        replace(entry("removed", change(7, None, BOB)), time_ms=300),
        replace(entry("later", change(10, 20)), time_ms=500),
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

"""What has to change so that declared quotas hold, and when a plan is out of date."""

import json
import math

import pytest

from kafka_quotas.core.changes.plan import (
    KeptPlan,
    PlannedChange,
    StalePlanError,
    applied,
    is_plan,
    new_values,
    plan_changes,
    plan_from,
    plan_text,
    unmanaged_in,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity

ALICE = Entity.of(user="alice")
BOB = Entity.of(user="bob")
ANYONE = Entity.of(user=None)
PRODUCE, CONSUME, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def test_only_what_differs_is_planned_and_an_entity_has_one_entry() -> None:
    stored = {ALICE: {PRODUCE: 1.0, CONSUME: 2.0}, BOB: {PRODUCE: 5.0}}
    plan = plan_changes(stored, {ALICE: {PRODUCE: 1.0, CONSUME: 3.0, REQUEST: None}, ANYONE: {PRODUCE: 9.0}})
    assert plan.changes == (
        PlannedChange(entity=ALICE, key=CONSUME, old=2.0, new=3.0),
        PlannedChange(entity=ANYONE, key=PRODUCE, old=None, new=9.0),
    )
    assert new_values(plan.changes) == {ALICE: {CONSUME: 3.0}, ANYONE: {PRODUCE: 9.0}}


def test_a_declared_null_removes_the_key_and_a_removed_entity_is_gone() -> None:
    plan = plan_changes({ALICE: {PRODUCE: 1.0}}, {ALICE: {PRODUCE: None}})
    assert new_values(plan.changes) == {ALICE: {PRODUCE: None}}
    assert applied({ALICE: {PRODUCE: 1.0}}, plan.changes) == {}


def test_what_is_not_declared_stays_unless_pruned_and_an_unknown_key_stays_even_then() -> None:
    stored = {ALICE: {PRODUCE: 1.0, CONSUME: 2.0}, BOB: {PRODUCE: 5.0, "future_rate": 7.0}}
    desired = {ALICE: {PRODUCE: 1.0}}
    assert plan_changes(stored, desired).changes == ()
    assert [(left.entity, left.keys, left.declared) for left in unmanaged_in(stored, desired)] == [
        (ALICE, (CONSUME,), True),
        (BOB, (PRODUCE, "future_rate"), False),
    ]
    assert new_values(plan_changes(stored, desired, prune=True).changes) == {
        ALICE: {CONSUME: None},
        BOB: {PRODUCE: None},
    }


def test_what_is_not_owned_is_never_touched() -> None:
    plan = plan_changes(
        {BOB: {PRODUCE: 5.0}}, {ANYONE: {PRODUCE: 1.0}}, prune=True, owns=lambda entity: entity == ALICE
    )
    assert plan.changes == ()
    assert unmanaged_in({BOB: {PRODUCE: 5.0}}, {}, owns=lambda entity: entity == ALICE) == ()


def test_nan_is_no_difference_from_itself() -> None:
    assert plan_changes({ALICE: {REQUEST: math.nan}}, {ALICE: {REQUEST: math.nan}}).changes == ()


def test_a_plan_is_refused_once_anything_else_has_changed() -> None:
    stored = {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 5.0}}
    plan = plan_changes(stored, {ALICE: {PRODUCE: 2.0}})
    assert plan.left_to_do(stored) == plan
    with pytest.raises(StalePlanError, match="that the plan does not name"):
        plan.left_to_do({ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 6.0}})
    with pytest.raises(StalePlanError, match="producer_byte_rate of user alice is 3, not 1"):
        plan.left_to_do({ALICE: {PRODUCE: 3.0}, BOB: {PRODUCE: 5.0}})


def test_half_a_plan_done_leaves_the_other_half_to_do() -> None:
    stored = {ALICE: {PRODUCE: 1.0}}
    plan = plan_changes(stored, {ALICE: {PRODUCE: 2.0}, BOB: {PRODUCE: 3.0}})
    left = plan.left_to_do({ALICE: {PRODUCE: 2.0}})
    assert new_values(left.changes) == {BOB: {PRODUCE: 3.0}}


def test_a_plan_comes_back_from_its_file_unchanged() -> None:
    odd = Entity.of(user='<default>, "a"\n\U0001f600', client_id=None)
    stored = {ALICE: {REQUEST: math.nan, PRODUCE: 9223372036854775807.0}}
    plan = plan_changes(stored, {ALICE: {REQUEST: 0.1, PRODUCE: None}, odd: {CONSUME: 1e300}})
    text = plan_text(KeptPlan(plan=plan, store_url="local:x.db"))
    document = json.loads(text)
    assert is_plan(document)
    assert document["changes"][1] == {
        "entity": {"user": "alice"}, "key": PRODUCE, "old": 9223372036854775808, "new": None,
    }  # fmt: skip
    kept = plan_from(document)
    assert kept.store_url == "local:x.db"
    assert repr(kept.plan) == repr(plan)


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": "kafka-quotas.plan/2"},
        {"changes": 7},
        {"changes": [{"entity": {"user": "a"}, "key": "x", "old": None}]},
        {"changes": [{"entity": {"user": 7}, "key": "x", "old": None, "new": 1}]},
        {"changes": [{"entity": {"user": "a"}, "key": "x", "old": None, "new": True}]},
        {"changes": [{"entity": {"group": "a"}, "key": "x", "old": None, "new": 1}]},
        {"changes": [{"entity": {"user": "a"}, "key": "x", "old": None, "new": "much"}]},
        {"changes": [{"entity": {"user": "a"}, "key": "x", "old": None, "new": 1}] * 2},
        {"fingerprint": None},
    ],
)
def test_a_damaged_plan_is_refused(damage: dict[str, object]) -> None:
    document = {"schema": "kafka-quotas.plan/1", "store": "local:x", "fingerprint": "sha256:0", "changes": []}
    with pytest.raises(UsageError):
        plan_from({**document, **damage})

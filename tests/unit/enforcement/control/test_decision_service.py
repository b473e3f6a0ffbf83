"""Questions of other programs as JSON, and answers from the buckets that sessions charge."""

import asyncio
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.daemon.decision_desk import APP, START_MS, Desk

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
from kafka_quotas.core.groups.membership import ClientGroups, GroupRate
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode, PolicyFile
from kafka_quotas.enforcement.control.decision_service import NO_API
from kafka_quotas.enforcement.decisions import (
    ANY_QUOTA_TYPES,
    MAX_BATCH,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
    decision_from_json,
    decision_to_json,
    request_from_json,
    request_to_json,
)
from kafka_quotas.enforcement.telemetry.status import answer_from_json

FEW = settings(max_examples=40, deadline=None)
texts = st.text(max_size=30)
asks = st.builds(
    DecisionRequest,
    st.sampled_from(Operation),
    st.sampled_from(list(ANY_QUOTA_TYPES.values())),
    st.floats(0, 2.0**63) | st.integers(0, 2**53),
    st.text(min_size=1, max_size=30),
    texts,
    st.text(max_size=20),
    texts,
    st.none() | st.integers(0, 2**31 - 1),
)


def test_a_program_draws_on_the_bucket_that_the_proxys_clients_draw_on() -> None:
    desk = Desk()
    limiter = desk.policy.broker(None).client("ANONYMOUS", "app").produce
    assert limiter.record(2000, START_MS) == 0
    decision = desk.decide(Operation.RECORD, 2000)
    assert (decision.delay_ms, decision.quota, decision.entity) == (2000, "producer_byte_rate", "client-id app")
    assert (decision.limit, decision.observed) == (1000.0, 2000.0)
    assert limiter.record(0, START_MS) == 2000


def test_a_check_charges_nothing_and_tells_what_a_record_would() -> None:
    desk = Desk()
    asked = [desk.decide(Operation.CHECK, 5000) for _ in range(3)]
    assert {decision.delay_ms for decision in asked} == {3000}
    assert {decision.observed for decision in asked} == {0.0}
    assert desk.decide(Operation.RECORD, 5000).delay_ms == 3000


def test_what_is_given_back_is_as_if_it_had_never_been_used() -> None:
    desk = Desk()
    assert desk.decide(Operation.RECORD, 5000).delay_ms == 3000
    given_back = desk.decide(Operation.UNRECORD, 5000)
    assert (given_back.delay_ms, given_back.observed) == (0, 0.0)
    assert desk.decide(Operation.RECORD, 2000).delay_ms == 0


def test_mutations_are_charged_only_where_there_is_nothing_to_wait_for() -> None:
    desk = Desk(limits={QuotaType.CONTROLLER_MUTATION: 1.0})
    assert desk.decide(Operation.RECORD, 10, QuotaType.CONTROLLER_MUTATION).delay_ms == 0
    refused = desk.decide(Operation.RECORD, 10, QuotaType.CONTROLLER_MUTATION)
    assert (refused.delay_ms, refused.observed) == (7000, -7.0)
    assert desk.decide(Operation.RECORD, 10, QuotaType.CONTROLLER_MUTATION).delay_ms == 7000


def test_request_time_is_asked_in_milliseconds_and_kept_in_per_cent_of_a_second() -> None:
    desk = Desk(limits={QuotaType.REQUEST: 10.0})
    assert desk.decide(Operation.RECORD, 200, QuotaType.REQUEST).delay_ms == 0
    over = desk.decide(Operation.RECORD, 100, QuotaType.REQUEST)
    assert over.observed == pytest.approx(15.0)
    assert over.delay_ms == 1000


def test_a_client_without_a_limit_waits_for_nothing_and_no_quota_says_so() -> None:
    decided = Desk().decider.decide(DecisionRequest(Operation.RECORD, QuotaType.PRODUCE, 1e15, client_id="other"))
    assert isinstance(decided, Decision)
    assert (decided.delay_ms, decided.entity, decided.limit) == (0, "", 0.0)


def test_terms_hold_here_as_well() -> None:
    terms = {APP: {"mode": Mode.SHADOW, "max_throttle_ms": 700}}
    decision = Desk(entities=terms).decide(Operation.RECORD, 50_000)
    assert (decision.delay_ms, decision.is_shadow) == (700, True)


def test_a_broker_that_nobody_met_has_no_buckets() -> None:
    desk = Desk()
    assert isinstance(
        desk.decider.decide(DecisionRequest(Operation.RECORD, QuotaType.PRODUCE, 1, broker=7)), DecisionError
    )
    assert list(desk.policy.brokers) == []


def test_what_programs_use_is_told_to_the_event_log() -> None:
    desk = Desk()
    desk.decide(Operation.RECORD, 5000)
    desk.decide(Operation.UNRECORD, 100)
    desk.decide(Operation.CHECK, 1)
    charges = [charge for _, _, charge in desk.charged]
    assert charges == [
        (START_MS, "ANONYMOUS", "app", QuotaType.PRODUCE, NO_API, 5000, 3000, False),
        (START_MS, "ANONYMOUS", "app", QuotaType.PRODUCE, NO_API, -100, 0, False),
    ]


def test_a_line_is_answered_with_a_line_that_has_its_id() -> None:
    desk = Desk()
    answer = desk.line({"v": 1, "id": "x", "op": "record", "type": "produce", "client_id": "app", "amount": 5000})
    assert answer == {
        "v": 1,
        "id": "x",
        "ok": True,
        "delay_ms": 3000,
        "quota": {"key": "producer_byte_rate", "entity": "client-id app", "limit": 1000.0, "observed": 2500.0},
        "shadow": False,
    }
    assert desk.line({"op": "check", "type": "fetch"})["quota"] is None


def test_the_groups_around_a_client_are_those_in_force_and_none_of_an_exempt_one() -> None:
    desk = Desk()
    everybody = Group(name="a", members=(GroupMember(user_pattern="*"),), producer_byte_rate=5.0)
    exempt = {Entity.of(user="mon"): {"exempt": True}}
    assert desk.line({"op": "groups", "user": "alice"})["groups"] == {
        "group": None,
        "rates": [],
        "needs_address": False,
    }
    desk.policy.replace(PolicyFile(groups=GroupTree((everybody,)), entities=exempt))
    found = desk.line({"op": "groups", "user": "alice", "id": 3})
    assert found["id"] == 3
    assert answer_from_json(ClientGroups, found["groups"]) == ClientGroups(
        group="a", rates=(GroupRate("a", "producer_byte_rate", 5.0, None),)
    )
    assert answer_from_json(ClientGroups, desk.line({"op": "groups", "user": "mon"})["groups"]).group is None
    assert desk.line({"op": "groups", "user": 7})["ok"] is False


def test_an_item_of_a_batch_that_can_not_be_answered_costs_no_other() -> None:
    item = {"op": "check", "type": "produce", "client_id": "app", "amount": 5000}
    answer = Desk().line({"op": "batch", "items": [item, {"op": "dance"}, 7, {**item, "broker": 9}, item]})
    answers = answer["answers"]
    assert isinstance(answers, list)
    assert [each["ok"] for each in answers] == [True, False, False, False, True]
    assert [each.get("delay_ms") for each in answers] == [3000, None, None, None, 3000]


@pytest.mark.parametrize(
    "message",
    [
        7,
        {},
        {"op": "fly"},
        {"op": []},
        {"v": 2, "op": "record", "type": "produce"},
        {"op": "record"},
        {"op": "record", "type": "produce", "amount": -1},
        {"op": "record", "type": "produce", "amount": True},
        {"op": "record", "type": "produce", "amount": "1"},
        {"op": "record", "type": "produce", "amount": 1e300},
        {"op": "record", "type": "produce", "user": None},
        {"op": "record", "type": "produce", "broker": "1"},
        {"op": "batch"},
        {"op": "batch", "items": [{}] * (MAX_BATCH + 1)},
        {"op": "reload"},
    ],
)
def test_a_line_that_is_no_question_is_told_what_it_is(message: object) -> None:
    answer = Desk().line(message)
    assert answer["ok"] is False
    assert answer["error"]


def test_json_that_is_none_is_told() -> None:
    desk = Desk()
    for line in (b"", b"{", b"\xff", b"[" * 100_000):
        answer = asyncio.run(desk.desk.answer_line(line, may_reload=True))
        assert json.loads(answer)["ok"] is False


def as_json(ask: DecisionRequest) -> dict[str, object]:
    """A request as a program would write it, without fields at their default."""
    given = {"user": ask.user, "client_id": ask.client_id, "ip": ask.ip, "topic": ask.topic, "broker": ask.broker}
    data: dict[str, object] = {"op": ask.op.name.lower(), "type": ask.quota_type.value, "amount": ask.amount}
    return data | {name: value for name, value in given.items() if value not in ("", None)}


@FEW
@given(ask=asks)
def test_a_request_is_read_as_it_was_written(ask: DecisionRequest) -> None:
    for written in (as_json(ask), request_to_json(ask)):
        assert request_from_json(json.loads(json.dumps(written))) == ask


decisions = st.builds(
    Decision,
    st.integers(0, 2**31 - 1),
    texts,
    st.text(min_size=1, max_size=30),
    st.floats(0, 1e18),
    st.floats(-1e18, 1e18),
    st.booleans(),
)


@FEW
@given(ask=asks, decision=decisions)
def test_a_decision_is_read_as_it_was_written(ask: DecisionRequest, decision: Decision) -> None:
    written = json.loads(json.dumps({"ok": True, **decision_to_json(decision)}))
    assert decision_from_json(written, ask) == decision


def test_a_decision_without_a_limit_names_the_quota_that_was_asked_for() -> None:
    ask = DecisionRequest(Operation.RECORD, QuotaType.FETCH, 1.0)
    without = Decision(0, QuotaType.FETCH.key.name, "", 0.0, 0.0)
    assert decision_from_json({"ok": True, **decision_to_json(without)}, ask) == without


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0, 1e300])
def test_an_amount_that_is_none_is_an_error_of_its_own(amount: float) -> None:
    good = {"op": "record", "type": "produce", "amount": 1.0}
    answers = Desk().line({"op": "batch", "items": [{**good, "amount": amount}, good]})["answers"]
    assert isinstance(answers, list)
    assert [each["ok"] for each in answers] == [False, True]

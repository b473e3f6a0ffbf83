"""Questions of other programs about addresses and topics: answered from what the proxy counts its own clients in."""

import json
from ipaddress import ip_network

import pytest
from tests.support.daemon.decision_desk import START_MS, Desk

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ResourceQuota, ThresholdSettings
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.decisions import Decision, DecisionError, DecisionRequest, Operation
from kafka_quotas.stores.store import QuotaEntry

CONNECTION, TOPIC = ResourceQuota.CONNECTION, ResourceQuota.TOPIC
SHADOW = {"mode": Mode.SHADOW}
TICK_MS = 5_000


def ask(desk: Desk, op: Operation, kind: ResourceQuota, amount: float, *, ip: str = "", topic: str = "") -> Decision:
    decided = desk.decider.decide(DecisionRequest(op, kind, amount, ip=ip, topic=topic))
    assert isinstance(decided, Decision), decided
    return decided


def desk_of_addresses(limit: float = 10.0, rules: dict[str, object] | None = None) -> Desk:
    desk = Desk(rules=rules)
    quotas = {"connection_creation_rate": limit}
    desk.connections.apply([QuotaEntry(entity=Entity.of(ip="192.0.2.7"), quotas=quotas)])
    return desk


def desk_of_topics(rules: dict[str, object] | None = None) -> Desk:
    """The broker takes in 2,000 bytes/s of its 1,000, all of them for `busy`, which may take 600."""
    desk = Desk(rules=rules)
    desk.thresholds.apply_file(ThresholdSettings(topics={"busy": 600.0}, totals={None: 1000.0}))
    ask(desk, Operation.RECORD, TOPIC, 10_000, topic="busy")
    desk.clock.advance(TICK_MS)
    return desk


def test_a_program_shares_the_rate_of_an_address_with_the_connections_that_come_in() -> None:
    desk = desk_of_addresses()
    rates = desk.connections.broker(None)
    assert [rates.record_ip("192.0.2.7", 1, START_MS) for _ in range(15)] == [0] * 15
    fits = ask(desk, Operation.RECORD, CONNECTION, 5, ip="192.0.2.7")
    assert (fits.delay_ms, fits.quota, fits.entity) == (0, "connection_creation_rate", "ip 192.0.2.7")
    assert (fits.limit, fits.observed) == (10.0, 10.0)
    assert rates.record_ip("192.0.2.7", 1, START_MS) == 100


def test_connections_that_have_to_wait_do_not_count_and_can_be_given_back() -> None:
    desk = desk_of_addresses()
    assert ask(desk, Operation.CHECK, CONNECTION, 100, ip="192.0.2.7").delay_ms == 1000
    refused = ask(desk, Operation.RECORD, CONNECTION, 100, ip="192.0.2.7")
    assert (refused.delay_ms, refused.observed) == (1000, 0.0)
    assert ask(desk, Operation.RECORD, CONNECTION, 20, ip="::ffff:192.0.2.7").observed == 10.0
    assert ask(desk, Operation.UNRECORD, CONNECTION, 5, ip="192.0.2.7").observed == 7.5
    assert ask(desk, Operation.RECORD, CONNECTION, 5, ip="192.0.2.7").delay_ms == 0


@pytest.mark.parametrize(("rate", "entity"), [(5, "group net"), (50, "ip 192.0.2.7")])
def test_a_decision_names_the_limit_that_requires_the_wait(rate: float, entity: str) -> None:
    desk = desk_of_addresses()
    member = GroupMember(address=ip_network("192.0.2.0/24"))
    desk.connections.groups = Membership(
        GroupTree([Group(name="net", connection_creation_rate=rate, members=(member,))])
    )

    decided = ask(desk, Operation.CHECK, CONNECTION, 21, ip="192.0.2.7")
    assert decided.delay_ms == min(1000, ask(desk, Operation.RECORD, CONNECTION, 21, ip="192.0.2.7").delay_ms)
    assert (decided.entity, decided.limit) == (entity, min(rate, 10.0))


def test_an_address_without_a_limit_waits_for_nothing() -> None:
    decided = ask(desk_of_addresses(), Operation.RECORD, CONNECTION, 1e9, ip="2001:db8::1")
    assert (decided.delay_ms, decided.entity, decided.limit) == (0, "", 0.0)


def test_the_mode_of_the_daemon_holds_for_addresses() -> None:
    desk = desk_of_addresses(rules=SHADOW)
    assert ask(desk, Operation.RECORD, CONNECTION, 100, ip="192.0.2.7")[::5] == (1000, True)


@pytest.mark.parametrize(
    "asked",
    [DecisionRequest(Operation.CHECK, CONNECTION, 1, ip=ip) for ip in ("", "example.org", "300.1.1.1")]
    + [DecisionRequest(Operation.RECORD, TOPIC, 1, topic=topic) for topic in ("", "a b", "..", "x" * 250)],
)
def test_what_is_no_address_and_no_name_of_a_topic_is_an_error(asked: DecisionRequest) -> None:
    assert isinstance(desk_of_topics().decider.decide(asked), DecisionError)


def test_data_for_a_topic_over_its_threshold_waits_until_the_rate_has_fallen() -> None:
    desk = desk_of_topics()
    refused = ask(desk, Operation.RECORD, TOPIC, 500, topic="busy")
    assert (refused.quota, refused.entity) == ("bytes.in.per.sec.threshold", "topic busy")
    assert (refused.limit, refused.observed) == (600.0, 2000.0)
    assert (desk.counters.threshold_rejected_bytes, desk.counters.threshold_rejected_batches) == (500, 1)
    assert refused.delay_ms % TICK_MS == 0
    desk.clock.advance(refused.delay_ms - 1)
    assert ask(desk, Operation.CHECK, TOPIC, 1, topic="busy").delay_ms == 1
    desk.clock.advance(1)
    assert ask(desk, Operation.RECORD, TOPIC, 1, topic="busy").delay_ms == 0


def test_a_topic_within_its_threshold_is_taken_though_the_broker_is_over_its_total() -> None:
    desk = desk_of_topics()
    calm = ask(desk, Operation.RECORD, TOPIC, 500, topic="calm")
    assert (calm.delay_ms, calm.entity, calm.limit) == (0, "topic calm", 400.0)


def test_asking_changes_nothing_and_what_is_given_back_was_never_taken() -> None:
    desk = desk_of_topics()
    before = desk.thresholds.broker(None).rates(START_MS + TICK_MS)
    assert ask(desk, Operation.CHECK, TOPIC, 1e9, topic="new").entity == ""
    assert desk.thresholds.broker(None).rates(START_MS + TICK_MS) == before
    ask(desk, Operation.RECORD, TOPIC, 50_000, topic="calm")
    ask(desk, Operation.UNRECORD, TOPIC, 50_000, topic="calm")
    desk.clock.advance(TICK_MS)
    assert ask(desk, Operation.CHECK, TOPIC, 0, topic="calm").observed == 0.0


def test_a_shadow_is_told_and_its_data_counts() -> None:
    desk = desk_of_topics(rules=SHADOW)
    told = ask(desk, Operation.RECORD, TOPIC, 50_000, topic="busy")
    assert told.is_shadow
    assert told.delay_ms > 0
    assert desk.counters.threshold_shadowed_bytes == 50_000
    desk.clock.advance(TICK_MS)
    assert ask(desk, Operation.CHECK, TOPIC, 0, topic="busy").observed > 2000.0


def test_without_a_total_every_topic_is_taken() -> None:
    decided = ask(Desk(), Operation.RECORD, TOPIC, 1e12, topic="any")
    assert (decided.delay_ms, decided.entity) == (0, "")


def test_a_topic_that_may_take_next_to_nothing_waits_an_hour_at_most() -> None:
    desk = desk_of_topics()
    desk.thresholds.apply_file(ThresholdSettings(topics={"busy": 1e-300}, totals={None: 1e-300}))
    assert ask(desk, Operation.CHECK, TOPIC, 1, topic="busy").delay_ms == 3_600_000


def test_both_kinds_can_be_asked_for_by_line() -> None:
    desk = desk_of_addresses()
    message = {"op": "record", "type": "connection", "ip": "192.0.2.7", "amount": 100}
    assert desk.line(message)["delay_ms"] == 1000
    answer = desk.line({"op": "check", "type": "topic"})
    assert answer["ok"] is False
    assert "topic" in json.dumps(answer["error"])

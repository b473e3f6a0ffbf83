"""What a daemon charges after its state was taken reaches its successor once, whatever was in that state."""

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.clock import VirtualClock
from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.client_policy import EntityPolicy, Mode, PolicyTable, Scope
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.filters.topic_cache import TopicCache
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.state.measured_state import MeasuredState
from kafka_quotas.enforcement.state.state_file import parse_state
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.enforcement.upgrade.charges_since import ChargesSince, record_charged
from kafka_quotas.stores.store import QuotaEntry

WINDOW = QuotaWindow(samples=3, window_s=1)
CLIENTS = ("app", "wide", "smooth", "new")
charges = st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(1, 500), st.sampled_from((1, 2, None))), max_size=12)


class Measuring:
    """A daemon's quotas and their state, on a clock that stands still."""

    def __init__(self) -> None:
        cluster = EntityPolicy(entity=Entity.of(client_id="wide"), settings={"scope": Scope.CLUSTER})
        smooth = EntityPolicy(entity=Entity.of(client_id="smooth"), settings={"mode": Mode.SMOOTH})
        self.policy = QuotaRegistry(WINDOW, policies=PolicyTable(entities=(cluster, smooth)))
        limits = {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0}
        self.policy.apply([QuotaEntry(entity=Entity.of(client_id=None), quotas=limits)])
        self.clock = VirtualClock(1_700_000_000_000)
        said: list[LogEvent] = []
        thresholds = ThresholdRegistry(cache=TopicCache(), counters=Counters(), notify=said.append, clock=self.clock)
        self.measured = MeasuredState(
            self.policy,
            connections=ConnectionQuotas(WINDOW),
            thresholds=thresholds,
            clock=self.clock,
            settings=("3 x 1 s",),
            bootstrap=lambda: None,
            notify=said.append,
        )

    def charge(self, rows: list[tuple[str, int, int | None]]) -> None:
        for client_id, amount, node_id in rows:
            self.policy.broker(node_id).client("u", client_id).produce.record(amount, self.clock.now_ms())

    def used(self) -> dict[tuple[str, str, tuple[str, str]], float]:
        now_ms = self.clock.now_ms()
        owners = [("cluster", self.policy.cluster), *((str(name), each) for name, each in self.policy.brokers.items())]
        names = {manager: f"{name} {mode.value}" for name, each in owners for mode, manager in each.managers()}
        return {
            (names[owner], owner.quota_type.value, bucket.name): bucket.used(now_ms)
            for pairs in self.policy.pool.walk()
            for bucket, owner in pairs
            if bucket.used(now_ms)
        }


@settings(max_examples=60, deadline=None)
@given(before=charges, during=charges, after=st.lists(charges, max_size=3))
def test_a_successor_has_what_was_charged_before_and_after_the_state_and_nothing_twice(
    before: list[tuple[str, int, int | None]],
    during: list[tuple[str, int, int | None]],
    after: list[list[tuple[str, int, int | None]]],
) -> None:
    old, new = Measuring(), Measuring()
    old.charge(before)
    since = ChargesSince(old.policy, old.clock.now_ms())
    pieces = []
    for piece in old.measured.text(since.note):
        pieces.append(piece)
        old.charge(during)
        during = []
    new.measured.restore(parse_state("".join(pieces), "the old one"), "the old one")
    for rows in [[], *after]:
        old.charge(rows)
        for charged in since.take():
            record_charged(new.policy, [asdict(each) for each in charged], new.clock.now_ms())
    assert new.used() == pytest.approx(old.used())


def test_a_successor_whose_clock_is_another_has_the_same_window() -> None:
    old, new = Measuring(), Measuring()
    old.charge([("app", 4000, 1)])
    new.clock.advance(3_600_000)
    text = "".join(old.measured.text())
    new.measured.restore(parse_state(text, "the old one"), "the old one", is_of_now=True)
    assert new.used() == old.used() != {}


@pytest.mark.parametrize("rows", [{}, "text", [{}], [1], [{"broker": 1, "mode": "other"}]])
def test_charges_that_are_none_are_refused(rows: object) -> None:
    with pytest.raises(ProtocolError):
        record_charged(Measuring().policy, rows, 0)

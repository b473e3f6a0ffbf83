"""Topic thresholds, their moving averages, and the spread rates' own example."""

import math

import pytest

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.metrics.rate import ALPHA, EwmaMeter
from kafka_quotas.core.quotas.topic_thresholds import (
    DROPPED_AT_ONCE,
    IDLE_MS,
    MAX_METERS,
    ThresholdDecision,
    TopicThresholds,
)

START_MS = 1_700_000_000_000


class CountedMeters(TopicThresholds):
    """Thresholds that count how many topics they look at for their shares."""

    counts = 0

    def _count_topic(self, topic: str, by: int) -> None:
        self.counts += 1
        super()._count_topic(topic, by)


class Thresholds(TopicThresholds):
    """Thresholds that a test changes one by one."""

    def set_total(self, bytes_per_second: float | None) -> None:
        self.configure(total=bytes_per_second, topics=self._stated)

    def set_topic(self, topic: str, bytes_per_second: float | None) -> None:
        topics = {name: value for name, value in self._stated.items() if name != topic}
        self.configure(
            total=self.total, topics=topics if bytes_per_second is None else {**topics, topic: bytes_per_second}
        )

    def produce(self, topic: str, size: int, now_ms: int) -> ThresholdDecision:
        """The decision on data for a topic, which the broker takes if it is admitted."""
        decision = self.look(topic, now_ms)
        if decision.admitted:
            self.record(topic, size, now_ms)
        return decision


def test_a_meter_is_zero_before_its_first_tick_and_then_the_rate_of_the_interval() -> None:
    meter = EwmaMeter(START_MS)
    meter.record(500, START_MS)
    assert meter.rate(START_MS + 4_999) == 0
    assert meter.rate(START_MS + 5_000) == 100


def test_a_meter_moves_only_at_ticks_and_by_alpha() -> None:
    meter = EwmaMeter(START_MS)
    meter.record(500, START_MS)
    meter.record(1000, START_MS + 5_000)
    assert meter.rate(START_MS + 9_999) == 100
    assert meter.rate(START_MS + 10_000) == pytest.approx(100 + (1 - math.exp(-5 / 60)) * 100, rel=1e-15)


def test_missed_ticks_are_applied_one_by_one_from_the_start_of_the_meter() -> None:
    meter, watched = EwmaMeter(START_MS), EwmaMeter(START_MS)
    for one in (meter, watched):
        one.record(500, START_MS)
    for second in range(0, 63, 2):
        watched.rate(START_MS + second * 1000)
    assert meter.rate(START_MS + 62_000) == watched.rate(START_MS + 62_000) == pytest.approx(100 * (1 - ALPHA) ** 11)
    meter.record(50, START_MS + 62_000)
    assert meter.rate(START_MS + 64_999) == watched.rate(START_MS + 64_999)
    assert meter.rate(START_MS + 65_000) > watched.rate(START_MS + 65_000)


def test_a_meter_left_alone_for_years_costs_no_more_than_its_fading() -> None:
    meter = EwmaMeter(0)
    meter.record(10**9, 0)
    assert meter.rate(START_MS) < 1e-300
    meter.record(5, START_MS)
    assert meter.rate(START_MS + 5_000) == pytest.approx(ALPHA)


def test_a_clock_that_goes_back_ticks_nothing() -> None:
    meter = EwmaMeter(START_MS)
    meter.record(500, START_MS)
    meter.record(500, START_MS - 60_000)
    assert meter.rate(START_MS + 5_000) == 200


def test_topics_without_a_threshold_share_what_is_left() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.lead({"a", "b", "c"})
    assert thresholds.threshold("a") is None
    thresholds.set_total(100)
    thresholds.set_topic("a", 40)
    assert [thresholds.threshold(topic) for topic in ("a", "b", "c", "elsewhere")] == [40, 30, 30, None]
    thresholds.lead({"a", "b", "c", "d"})
    assert thresholds.threshold("d") == 20
    thresholds.lead({"b", "c", "d", "e"})
    assert thresholds.threshold("e") == 25
    thresholds.set_topic("a", None)
    thresholds.set_total(None)
    assert thresholds.threshold("b") is None


def test_no_share_is_computed_where_every_topic_has_its_own() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_total(100)
    thresholds.lead({"a"})
    thresholds.set_topic("a", 100)
    assert thresholds.threshold("a") == 100
    assert thresholds.threshold("b") is None


def test_a_change_beyond_the_total_is_refused_and_changes_nothing() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_topic("a", 60)
    thresholds.set_total(100)
    thresholds.set_topic("b", 40)
    with pytest.raises(InvalidQuotaError, match="would sum to 101 bytes/s, more than the total of 100"):
        thresholds.set_topic("b", 41)
    with pytest.raises(InvalidQuotaError):
        thresholds.set_total(99)
    assert (thresholds.threshold("a"), thresholds.threshold("b")) == (60, 40)
    thresholds.set_topic("b", 39)
    thresholds.set_total(99)


def test_data_is_rejected_only_where_both_are_over_and_counts_in_nothing() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_total(100)
    thresholds.set_topic("small", 10)
    thresholds.lead({"small", "large"})
    assert thresholds.produce("small", 300, START_MS).admitted
    assert thresholds.produce("large", 100, START_MS).admitted
    tick_ms = START_MS + 5_000
    under_total = thresholds.produce("small", 5000, tick_ms)
    assert (under_total.admitted, under_total.topic_rate, under_total.total_rate) == (True, 60, 80)
    tick_ms += 5_000
    rejected = thresholds.produce("small", 10**9, tick_ms)
    assert not rejected.admitted
    assert rejected.reason == "topic small takes in 135 bytes/s of its 10, and the broker 154 of its 100"
    assert thresholds.produce("large", 10, tick_ms).admitted
    later = thresholds.produce("large", 1, tick_ms + 5_000)
    assert later.total_rate < rejected.total_rate


def test_a_topic_of_which_the_broker_took_data_gets_its_share_and_a_mere_name_none() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_total(100)
    assert thresholds.produce("one", 1, START_MS).topic_threshold is None
    assert thresholds.look("one", START_MS).topic_threshold == 100
    for number in range(100):
        assert thresholds.look(f"made-up-{number}", START_MS).admitted
    assert thresholds.look("one", START_MS).topic_threshold == 100
    thresholds.produce("two", 1, START_MS)
    assert thresholds.look("one", START_MS).topic_threshold == 50
    thresholds.lead({"one", "three"})
    assert thresholds.look("one", START_MS).topic_threshold == pytest.approx(100 / 3)


def test_the_topics_with_the_latest_data_have_a_rate_and_idle_ones_no_share() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_total(100)
    for number in range(MAX_METERS + 100):
        thresholds.record(f"t{number}", 1, START_MS)
        thresholds.record("busy", 1, START_MS)
    assert len(thresholds.rates(START_MS)) == MAX_METERS + 1, "that of all together comes beside them"
    assert thresholds.threshold("t0") is None
    assert thresholds.threshold("busy") == 100 / MAX_METERS
    for second in range(2 * MAX_METERS // DROPPED_AT_ONCE):
        thresholds.record(f"new{second}", 1, START_MS + IDLE_MS + second)
    assert thresholds.threshold("t5000") is None
    share = 100 / (2 * MAX_METERS // DROPPED_AT_ONCE)
    assert thresholds.threshold("new9") == pytest.approx(share, rel=0.01)


def test_ten_thousand_topics_cost_a_step_each() -> None:
    thresholds = CountedMeters(START_MS)
    thresholds.configure(total=100, topics={})
    for number in range(MAX_METERS):
        thresholds.record(f"t{number}", 1, START_MS)
    assert thresholds.counts == MAX_METERS


def test_rates_equal_to_their_thresholds_reject_nothing() -> None:
    thresholds = Thresholds(START_MS)
    thresholds.set_total(100)
    thresholds.set_topic("a", 10)
    thresholds.produce("a", 500, START_MS)
    at_total = thresholds.produce("a", 1, START_MS + 5_000)
    assert (at_total.admitted, at_total.total_rate, at_total.topic_rate) == (True, 100, 100)
    thresholds.set_total(99)
    assert not thresholds.produce("a", 1, START_MS + 5_000).admitted
    thresholds.set_topic("a", 99)
    assert not thresholds.produce("a", 1, START_MS + 5_000).admitted
    thresholds.set_total(100)
    thresholds.set_topic("a", 100)
    assert thresholds.produce("a", 1, START_MS + 5_000).admitted

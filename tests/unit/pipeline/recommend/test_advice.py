"""Which default and overrides are advised, by hand-made demands."""

from dataclasses import replace

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.advice import Supply, Tolerance, advise, neat_limit
from kafka_quotas.pipeline.recommend.capacity import parse_capacities
from kafka_quotas.pipeline.recommend.demand import BrokerDemand, Demand, ImpliedDemand, Trial
from kafka_quotas.pipeline.recommend.quota_file import default_reason

NO_OUTLIERS = Tolerance(clients_share=0.0, time_share=0.0, headroom=1.0)


def broker(peak: float, *trials: tuple[float, float], broker_id: int = 1) -> BrokerDemand:
    tried = tuple(Trial(limit=limit, throttled_share=share) for limit, share in trials)
    return BrokerDemand(broker_id=broker_id, p50=peak / 2, p99=peak, peak=peak, active_s=100, trials=tried)


def demand(user: str, *brokers: BrokerDemand) -> Demand:
    return Demand(quota_type=QuotaType.PRODUCE, user=user, client_id=None, brokers=brokers)


def even(count: int) -> list[Demand]:
    """Users who need 1,000, 2,000, ... bytes/s and were tried with nothing less."""
    return [demand(f"user-{index:03}", broker(1000.0 * index)) for index in range(1, count + 1)]


class TestNeeded:
    def test_it_is_the_lowest_trial_from_which_on_all_are_within_the_tolerance(self) -> None:
        one = broker(1000.0, (200.0, 0.5), (400.0, 0.1), (600.0, 0.02), (800.0, 0.0))

        assert one.needed(0.1) == 400.0
        assert one.needed(0.05) == 600.0
        assert one.needed(0.0) == 800.0

    def test_a_lucky_low_trial_below_a_failed_one_does_not_count(self) -> None:
        assert broker(1000.0, (200.0, 0.0), (400.0, 0.1), (600.0, 0.0)).needed(0.05) == 600.0

    def test_the_peak_suffices_where_nothing_lower_does(self) -> None:
        assert broker(1000.0, (400.0, 0.5)).needed(0.01) == 1000.0
        assert broker(1000.0).needed(0.01) == 1000.0

    def test_it_is_that_of_the_busiest_broker(self) -> None:
        one = demand("a", broker(100.0, broker_id=1), broker(300.0, broker_id=2))

        assert (one.needed(0.0), one.busiest(0.0).broker_id) == (300.0, 2)
        assert one.skew(broker_count=3) == pytest.approx(2.25)


class TestDefault:
    def test_it_suffices_for_all_but_the_tolerated_share(self) -> None:
        advice = advise(
            QuotaType.PRODUCE, even(100), tolerance=Tolerance(clients_share=0.05, time_share=0.0, headroom=1.0)
        )

        assert advice is not None
        assert advice.default == 95_000.0
        assert [each.demand.user for each in advice.overrides] == [f"user-{n:03}" for n in (100, 99, 98, 97, 96)]

    def test_a_smaller_one_would_not_suffice(self) -> None:
        demands = even(100)
        advice = advise(
            QuotaType.PRODUCE, demands, tolerance=Tolerance(clients_share=0.05, time_share=0.0, headroom=1.0)
        )

        assert advice is not None
        assert sum(each.needed(0.0) > advice.default - 1 for each in demands) > 5

    def test_without_tolerance_nobody_gets_an_override(self) -> None:
        advice = advise(QuotaType.PRODUCE, even(7), tolerance=NO_OUTLIERS)

        assert advice is not None
        assert (advice.default, advice.overrides) == (7000.0, ())

    def test_nothing_is_advised_where_nobody_used_the_type(self) -> None:
        assert advise(QuotaType.FETCH, even(3), tolerance=NO_OUTLIERS) is None
        assert advise(QuotaType.PRODUCE, [demand("idle", broker(0.0))], tolerance=NO_OUTLIERS) is None


@pytest.mark.parametrize(("clients", "outliers"), [(1, 0), (2, 1), (5, 1), (19, 1), (20, 1), (39, 1), (40, 2)])
def test_one_client_of_a_small_cluster_may_need_more_than_the_default(clients: int, outliers: int) -> None:
    assert Tolerance(clients_share=0.05).outliers(clients) == outliers
    assert Tolerance(clients_share=0.0).outliers(clients) == 0


def held(rate: float, *, is_unknown: bool = False) -> ImpliedDemand:
    return ImpliedDemand(
        rate=rate, low=None, high=None, growth=1.0, busiest_hour=0, days=1, held_share=0.5, is_unknown=is_unknown
    )


def test_a_client_that_was_held_back_needs_what_its_throttle_times_imply_and_at_least_that() -> None:
    throttled = demand("a", replace(broker(1000.0, (900.0, 0.0)), implied=held(3000.0)))
    advice = advise(QuotaType.PRODUCE, [throttled], tolerance=Tolerance())
    assert advice is not None
    assert (throttled.is_lower_bound, advice.default) == (True, 3600.0)
    assert "1 of 1 clients" in default_reason(advice)


def test_growth_raises_what_is_needed_and_the_busiest_hour_counts() -> None:
    growing = replace(held(500.0), growth=1.5, held_share=0.0)
    assert replace(broker(1000.0, (800.0, 0.0)), implied=growing).needed(0.01) == 1200.0
    assert replace(broker(1000.0, (800.0, 0.0)), implied=replace(growing, rate=1900.0)).needed(0.01) == 1900.0


def test_default_and_override_have_headroom_and_say_what_the_default_would_do() -> None:
    whale = demand("whale", broker(1_000_000.0, (10_000.0, 0.9), (500_000.0, 0.2)))
    advice = advise(QuotaType.PRODUCE, [*even(19), whale], tolerance=Tolerance(clients_share=0.05, headroom=1.25))

    assert advice is not None
    assert advice.default == 24_000.0
    (override,) = advice.overrides
    assert (override.limit, override.throttled_share_at_default, override.throttled_share) == (1_300_000.0, 0.9, 0.0)


class TestCapacity:
    FILE = """{"brokerCapacities": [
        {"brokerId": "-1", "capacity": {"DISK": "5", "CPU": {"num.cores": "4"}, "NW_IN": "10", "NW_OUT": "20"}},
        {"brokerId": "2", "capacity": {"CPU": "100", "NW_IN": "1000"}}]}"""

    def test_broker_minus_one_stands_for_the_others(self) -> None:
        capacities = parse_capacities(self.FILE, "capacity.json")
        other, second = capacities.of(7), capacities.of(2)

        assert other is not None
        assert second is not None
        assert [other.of(kind) for kind in QuotaType][:4] == [10_240.0, 20_480.0, 400.0, None]
        assert [second.of(kind) for kind in QuotaType][:4] == [1_024_000.0, None, None, None]

    def test_the_sum_at_each_broker_is_held_against_it(self) -> None:
        demands = [
            demand("a", broker(8000.0, broker_id=1), broker(1000.0, broker_id=2)),
            demand("b", broker(1000.0, broker_id=1)),
        ]
        advice = advise(
            QuotaType.PRODUCE,
            demands,
            tolerance=Tolerance(clients_share=0.0, time_share=0.0, headroom=1.0),
            supply=Supply(capacities=parse_capacities(self.FILE, "capacity.json")),
        )

        assert advice is not None
        assert [(each.broker_id, each.wanted, each.allowed, each.fits) for each in advice.loads] == [
            (1, 16_000.0, 8_200.0 - 200.0, False),
            (2, 8000.0, 4000.0, True),
        ]
        assert (advice.default, advice.wanted_default) == (4000.0, 8000.0)
        assert all(map(advice.pays, advice.demands))

    def test_who_has_priority_pays_less(self) -> None:
        capacities = parse_capacities(self.FILE, "capacity.json")
        supply = Supply(capacities=capacities, priority=lambda each: 3.0 if each.user == "b" else 1.0)
        demands = [demand("a", broker(8000.0)), demand("b", broker(8000.0)), demand("c", broker(1000.0))]
        advice = advise(QuotaType.PRODUCE, demands, tolerance=replace(NO_OUTLIERS, clients_share=0.7), supply=supply)

        assert advice is not None
        assert advice.default == 1000.0
        assert {each.demand.user: each.limit for each in advice.overrides} == {"a": 1700.0, "b": 5300.0}
        assert [advice.pays(each) for each in advice.demands] == [False, True, True]

    def test_replication_is_taken_off_first(self) -> None:
        supply = Supply(capacities=parse_capacities(self.FILE, "capacity.json"), replication={1: (9000.0, 4192.0)})
        advice = advise(QuotaType.PRODUCE, [demand("a", broker(8000.0))], tolerance=NO_OUTLIERS, supply=supply)

        assert advice is not None
        assert (advice.loads[0].available, advice.default) == (4000.0, 4000.0)

    def test_a_load_without_a_capacity_is_not_judged(self) -> None:
        advice = advise(QuotaType.PRODUCE, even(2), tolerance=NO_OUTLIERS)

        assert advice is not None
        assert [each.fits for each in advice.loads] == [None]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "no JSON at line 1"),
            ("[]", "not a capacity file"),
            ("{}", "'brokerCapacities' is missing"),
            ('{"brokerCapacities": []}', "names no broker"),
            ('{"brokerCapacities": [{"brokerId": "x", "capacity": {}}]}', "invalid literal"),
            ('{"brokerCapacities": [{"brokerId": "1", "capacity": {"NW_IN": "-5"}}]}', "NW_IN is -5"),
            ('{"brokerCapacities": [{"brokerId": "1", "capacity": 5}]}', "not a capacity file"),
        ],
    )
    def test_another_file_is_refused_by_name(self, text: str, reason: str) -> None:
        with pytest.raises(UsageError, match=r"capacity\.json") as refused:
            parse_capacities(text, "capacity.json")
        assert reason in refused.value.message


@pytest.mark.parametrize(
    ("quota_type", "value", "neat"),
    [
        (QuotaType.PRODUCE, 1_234_567.0, 1_300_000.0),
        (QuotaType.PRODUCE, 1_300_000.0, 1_300_000.0),
        (QuotaType.PRODUCE, 7.2, 8.0),
        (QuotaType.PRODUCE, 0.001, 1.0),
        (QuotaType.PRODUCE, 1e30, float(2**63 - 1)),
        (QuotaType.REQUEST, 1.234, 1.3),
        (QuotaType.REQUEST, 0.0001, 0.01),
        (QuotaType.CONTROLLER_MUTATION, 0.123, 0.13),
    ],
)
def test_limits_are_rounded_up_to_two_digits(quota_type: QuotaType, value: float, neat: float) -> None:
    assert neat_limit(quota_type.key, value) == neat


@pytest.mark.parametrize(
    "wrong",
    [{"clients_share": 1.0}, {"time_share": -0.1}, {"headroom": 0.9}, {"capacity_share": 0.0}],
)
def test_a_tolerance_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Tolerance(**wrong)


def test_the_least_default_for_reading_is_an_option() -> None:
    readers = [replace(each, quota_type=QuotaType.FETCH) for each in even(4)]
    advice = advise(QuotaType.FETCH, readers, tolerance=replace(NO_OUTLIERS, fetch_floor=0.0))
    assert advice is not None
    assert (advice.default, advice.is_raised) == (4000.0, False)


def test_the_default_for_reading_lets_a_whole_fetch_through() -> None:
    readers = [replace(each, quota_type=QuotaType.FETCH) for each in even(4)]
    advice = advise(QuotaType.FETCH, readers, tolerance=NO_OUTLIERS)
    assert advice is not None
    assert advice.lowest_default < 1_048_576
    assert advice.is_raised
    assert advice.default == 1_100_000.0
    assert advice.overrides == ()
    assert "a consumer may get nothing at all" in default_reason(advice)

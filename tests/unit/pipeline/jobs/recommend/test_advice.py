"""Which default and overrides are advised, by hand-made demands."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.jobs.recommend.advice import NEEDIEST_SHOWN, Advice, Demand, Override
from kafka_quotas.pipeline.jobs.recommend.capacity import Replication, within_capacity
from kafka_quotas.pipeline.jobs.recommend.clients import Clients
from kafka_quotas.pipeline.jobs.recommend.findings import default_reason
from kafka_quotas.pipeline.jobs.recommend.job import TRIED
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan, neat_limit, parse_capacities
from kafka_quotas.pipeline.jobs.usage.job import UsageTables
from kafka_quotas.pipeline.tables.results import USED, WINDOW

NO_OUTLIERS = RecommendPlan(overrides=0, time_share=0.0, headroom=1.0)
ACTIVE_S = 100
Row = dict[str, Any]


def broker(peak: float, *trials: tuple[float, float], broker_id: int = 1, **implied: Any) -> Row:
    """What a client did at a broker, with the limits that were tried and the shares that they throttle."""
    rates = {"p50": peak / 2, "p99": peak, "max": peak, "active_share": 1.0}
    return {"broker_id": broker_id, **rates, **held(0.0, held_share=0.0), **implied, "trials": trials}


def held(rate: float, *, growth: float = 1.0, held_share: float = 0.5, is_unknown: bool = False) -> Row:
    own = {"demand": rate, "growth": growth, "held_share": held_share}
    return own | {"low": None, "high": None, "busiest_hour": 0, "days": 1, "is_unknown": is_unknown}


def minutes_of(rates: Sequence[float]) -> list[Row]:
    """A client's windows: what it wrote in each minute, in bytes/s."""
    zeros = dict.fromkeys(WINDOW.names, 0)
    return [
        zeros | {"window_start_ms": 60_000 * minute, "window_s": 60, "bytes": round(rate * 60)}
        for minute, rate in enumerate(rates)
    ]


def demand(user: str, *brokers: Row, kind: QuotaType = QuotaType.PRODUCE) -> list[Row]:
    names = {"cluster": "c", "quota_type": kind.value, "user": user, "client_id": ""}
    return [names | each for each in brokers]


def even(count: int, kind: QuotaType = QuotaType.PRODUCE) -> list[Row]:
    """Users who need 1,000, 2,000, ... bytes/s and were tried with nothing less."""
    return [
        row for index in range(1, count + 1) for row in demand(f"user-{index:03}", broker(1000.0 * index), kind=kind)
    ]


def tried_rows(rows: Sequence[Row], shares: Sequence[Mapping[float, float]], *, proposal: int = 0) -> pa.Table:
    """Rows of a replay that throttled each row, under some limits, for a share of its active time."""
    return pa.Table.from_pylist(
        [
            row | {"proposal": proposal, "quota": limit, "throttle_ms": round(share * ACTIVE_S * 1000)}
            for row, own in zip(rows, shares, strict=True)
            for limit, share in own.items()
            if share > 0
        ],
        schema=TRIED,
    )


def tried_clients(rows: Sequence[Row], plan: RecommendPlan) -> Clients:
    """The clients, all of them tried with all limits: below its peak a limit throttles who did not say otherwise."""
    tables = DuckTables()
    buckets = pa.Table.from_pylist([{"windows": [], **row} for row in rows], schema=USED)
    used = UsageTables.of(tables, tables.add("buckets", buckets))
    chosen = tables.add("chosen", pa.table({"cluster": ["c"]}))
    clients = Clients(used, plan, chosen, seconds=ACTIVE_S)
    kinds = {QuotaType(row["quota_type"]) for row in rows}
    tried = {
        kind: sorted({limit for row in rows if row["quota_type"] == kind.value for limit, _ in row["trials"]})
        or [1000.0]
        for kind in kinds
    }
    shares = [
        dict(row["trials"])
        if row["trials"]
        else {limit: float(limit < row["max"]) for limit in tried[QuotaType(row["quota_type"])]}
        for row in rows
    ]
    clients.add_sweep(tried, tables.add("tried", tried_rows(rows, shares)))
    return clients


def demands(rows: Sequence[Row], plan: RecommendPlan) -> list[Demand]:
    clients = tried_clients(rows, plan)
    kinds = {QuotaType(row["quota_type"]): 0.0 for row in rows}
    return clients.named(kinds)


def needed(tolerated_share: float, *brokers: Row) -> Demand:
    (found,) = demands(demand("a", *brokers), replace(NO_OUTLIERS, time_share=tolerated_share))
    return found


def advise(
    kind: QuotaType,
    rows: Sequence[Row],
    *,
    plan: RecommendPlan,
    replication: Replication | None = None,
    **asked: Any,
) -> Advice:
    (found,) = tried_clients(rows, replace(plan, **asked)).advices(replication or {})
    assert found.quota_type is kind
    return found


def replayed_advice(
    rows: Sequence[Row],
    plan: RecommendPlan,
    *,
    shares: Sequence[float],
    alone: Sequence[float] | None = None,
    **changed: Any,
) -> Advice:
    """The advice for these demands, whose replay throttled each row for a share of its active time.

    `alone` are the shares under the default alone, None for the same.
    """
    clients = tried_clients(rows, plan)
    both = [
        tried_rows(rows, [{1.0: share} for share in own], proposal=place)
        for place, own in enumerate((shares, shares if alone is None else alone))
    ]
    advices = [replace(each, **changed) for each in clients.advices({})]
    (found,) = clients.outcomes(advices, clients.tables.add("replayed", pa.concat_tables(both)))
    return found


class TestNeeded:
    def test_it_is_the_lowest_trial_from_which_on_all_are_within_the_tolerance(self) -> None:
        one = broker(1000.0, (200.0, 0.5), (400.0, 0.1), (600.0, 0.02), (800.0, 0.0))

        assert [needed(share, one).needed for share in (0.1, 0.05, 0.0)] == [400.0, 600.0, 800.0]

    def test_a_lucky_low_trial_below_a_failed_one_does_not_count(self) -> None:
        assert needed(0.05, broker(1000.0, (200.0, 0.0), (400.0, 0.1), (600.0, 0.0))).needed == 600.0

    def test_the_peak_suffices_where_nothing_lower_does(self) -> None:
        assert needed(0.01, broker(1000.0, (400.0, 0.5))).needed == 1000.0
        assert needed(0.01, broker(1000.0)).needed == 1000.0

    def test_it_is_that_of_the_busiest_broker(self) -> None:
        one = needed(0.0, broker(100.0, broker_id=1), broker(300.0, broker_id=2))

        assert (one.needed, one.busiest.broker_id) == (300.0, 2)
        assert Override(demand=one, limit=1.0, wanted=1.0, broker_count=3).skew == pytest.approx(2.25)


class TestDefault:
    def test_it_suffices_for_all_but_the_tolerated_share(self) -> None:
        advice = advise(QuotaType.PRODUCE, even(100), plan=RecommendPlan(overrides=5, time_share=0.0, headroom=1.0))

        assert advice.default == 95_000.0
        assert [each.demand.user for each in advice.overrides] == [f"user-{n:03}" for n in (100, 99, 98, 97, 96)]

    def test_without_tolerance_nobody_gets_an_override(self) -> None:
        advice = advise(QuotaType.PRODUCE, even(7), plan=NO_OUTLIERS)

        assert (advice.default, advice.overrides) == (7000.0, ())

    def test_nothing_is_advised_where_nobody_used_the_type(self) -> None:
        assert tried_clients(even(3), NO_OUTLIERS).used() == {QuotaType.PRODUCE: (500.0, 3000.0)}
        assert tried_clients(demand("idle", broker(0.0)), NO_OUTLIERS).used() == {}


def test_the_few_need_more_than_a_fence_above_the_many_and_the_choice_is_shown() -> None:
    many = [row for number in range(40) for row in demand(f"svc-{number:02}", broker(100_000.0 * 1.07**number))]
    few = [
        row for user, need in (("batch", 20e6), ("held", 12e6), ("reader", 15e6)) for row in demand(user, broker(need))
    ]
    plan = RecommendPlan(time_share=0.0, headroom=1.0)
    advice = advise(QuotaType.PRODUCE, [*many, *few], plan=plan)
    assert [each.demand.user for each in advice.overrides] == ["batch", "reader", "held"]
    assert advice.default == neat_limit(QuotaType.PRODUCE.key, 100_000.0 * 1.07**39)
    assert dict(advice.choices) == {0: 20e6, 1: 15e6, 2: 12e6, 5: 1.3e6, 10: 880_000.0, 20: 450_000.0}
    alone = advise(QuotaType.PRODUCE, demand("one", broker(2e6)), plan=replace(plan, overrides=3))
    assert (alone.default, alone.overrides) == (2e6, ())
    alike = advise(QuotaType.PRODUCE, [*many[:1], *demand("other", broker(150_000.0))], plan=plan)
    assert (alike.default, alike.overrides) == (150_000.0, ())


def test_a_client_that_was_held_back_needs_what_its_throttle_times_imply_and_at_least_that() -> None:
    throttled = demand("a", broker(1000.0, (900.0, 0.0), **held(3000.0)))
    advice = advise(QuotaType.PRODUCE, throttled, plan=RecommendPlan())
    assert (advice.held, [each.implied.is_held for each in advice.most_held], advice.default) == (1, [True], 3600.0)
    assert "enough for 1 of 1 client" in default_reason(advice)


def test_growth_raises_what_is_needed_and_the_busiest_hour_counts() -> None:
    for rate, expected in ((500.0, 1200.0), (1900.0, 1900.0)):
        growing = broker(1000.0, (800.0, 0.0), **held(rate, growth=1.5, held_share=0.0))
        assert needed(0.01, growing).needed == expected


def test_default_and_override_have_headroom_and_say_what_the_default_would_do() -> None:
    whale = demand("whale", broker(1_000_000.0, (10_000.0, 0.9), (500_000.0, 0.2)))
    plan = RecommendPlan(overrides=1, headroom=1.25)
    rows = [*even(19), *whale]
    found = replayed_advice(rows, plan, shares=[*[0.004] * 19, 0.0], alone=[*[0.004] * 19, 0.9])

    assert (found.default, found.clients, found.without_override) == (24_000.0, 20, 19)
    (override,) = found.overrides
    assert (override.limit, override.throttled_share_at_default, override.throttled_share) == (1_300_000.0, 0.9, 0.0)
    assert (found.largest_tolerated_share, found.peak, found.exceeding_clients) == (0.004, 19_000.0, 0)


def test_who_would_be_held_back_for_longer_than_tolerated_is_counted_and_the_neediest_are_named() -> None:
    plan = replace(NO_OUTLIERS, time_share=0.01)
    found = replayed_advice(even(50), plan, shares=[0.011] * 50, alone=[0.0] * 50)
    assert found.exceeding_clients == 50
    assert [each.user for each, _ in found.exceeding] == [f"user-{n:03}" for n in range(50, 30, -1)]
    assert {round(share, 6) for _, share in found.exceeding} == {0.011}
    assert not any(found.pays(each) for each, _ in found.exceeding)
    paying = replayed_advice(even(50), plan, shares=[0.011] * 50, default=1.0)
    assert all(paying.pays(each) for each, _ in paying.exceeding)


def test_of_many_clients_only_those_who_stand_out_come_here() -> None:
    random = np.random.default_rng(1)
    rows = [row for n in range(5_000) for row in demand(f"user-{n:06}", broker(random.uniform(1000.0, 2000.0)))]
    plan = replace(NO_OUTLIERS, explained="user-000007")
    (found,) = tried_clients(rows, plan).advices({})
    assert (found.clients, len(found.named)) == (5_000, NEEDIEST_SHOWN + 1)


def test_the_client_to_explain_is_named_though_it_needs_little() -> None:
    advice = advise(QuotaType.PRODUCE, even(30), plan=NO_OUTLIERS, explained="user-002")
    assert advice.explained is not None
    assert (advice.explained.user, advice.explained.needed) == ("user-002", 2000.0)
    assert advice.curve == ((1000.0, 29),)


class TestCapacity:
    FILE = """{"brokerCapacities": [
        {"brokerId": "-1", "capacity": {"DISK": "5", "CPU": {"num.cores": "4"}, "NW_IN": "10", "NW_OUT": "20"}},
        {"brokerId": "2", "capacity": {"CPU": "100", "NW_IN": "1000"}}]}"""

    def test_broker_minus_one_stands_for_the_others(self) -> None:
        capacities = parse_capacities(self.FILE, "capacity.json")
        plan = replace(NO_OUTLIERS, capacities=capacities)
        assert [plan.capacity(kind, 7) for kind in QuotaType][:4] == [10_240.0, 20_480.0, 400.0, None]
        assert [plan.capacity(kind, 2) for kind in QuotaType][:4] == [1_024_000.0, None, None, None]

    def cut(
        self,
        rows: Sequence[Row],
        taken: dict[str, list[float]],
        others: list[float],
        *,
        replication: Replication | None = None,
        **asked: Any,
    ) -> Advice:
        """The advice of one override for each client in `taken`, held against what all take in each minute."""
        shared = [each / max(len(rows) - len(taken), 1) for each in others]
        rows = [each | {"windows": minutes_of(taken.get(each["user"], shared))} for each in rows]
        plan = replace(NO_OUTLIERS, overrides=len(taken))
        asked = {"capacities": parse_capacities(self.FILE, "capacity.json")} | asked
        clients = tried_clients(rows, replace(plan, **asked))
        (advice,) = clients.advices(replication or {})
        return within_capacity(clients.observed, clients.chosen, advice)

    def test_what_clients_take_at_the_same_time_is_held_against_it(self) -> None:
        rows = [*demand("a", broker(8000.0)), *demand("b", broker(1000.0))]
        apart = self.cut(rows, {"a": [8000.0, 0.0]}, [100.0, 1000.0])
        assert [(each.limits, each.wanted, each.allowed, each.fits) for each in apart.loads] == [
            (9000.0, 8100.0, 8100.0, True)
        ]
        assert [(each.limit, each.pays) for each in apart.overrides] == [(8000.0, False)]
        together = self.cut(rows, {"a": [0.0, 8000.0]}, [1000.0, 1000.0])
        assert [(each.wanted, each.at_ms, each.allowed, each.fits) for each in together.loads] == [
            (9000.0, 60_000, 8100.0, False)
        ]
        assert [(each.limit, each.pays) for each in together.overrides] == [(7100.0, True)]
        assert (together.default, together.pays(together.overrides[0].demand)) == (1000.0, True)

    def test_who_has_priority_pays_less(self) -> None:
        rows = [*demand("a", broker(8000.0)), *demand("b", broker(8000.0)), *demand("c", broker(1000.0))]
        advice = self.cut(
            rows,
            {"a": [8000.0], "b": [8000.0]},
            [1000.0],
            priorities=(("b", 3.0),),
        )
        assert {each.demand.user: each.limit for each in advice.overrides} == {"a": 1700.0, "b": 5300.0}
        assert advice.default == advice.wanted_default == 1000.0

    def test_the_default_is_cut_where_the_many_alone_are_too_much(self) -> None:
        rows = [*demand("a", broker(8000.0)), *demand("b", broker(8000.0))]
        advice = self.cut(rows, {}, [9000.0])
        assert (advice.default, advice.wanted_default, advice.overrides) == (4000.0, 8000.0, ())
        assert [(each.allowed, each.fits) for each in advice.loads] == [(8000.0, False)]

    def test_replication_is_taken_off_first(self) -> None:
        advice = self.cut(
            demand("a", broker(8000.0)),
            {},
            [8000.0],
            replication={1: {QuotaType.FETCH: 9000.0, QuotaType.PRODUCE: 4192.0}},
        )
        assert (advice.loads[0].available, advice.default) == (4000.0, 4000.0)

    def test_what_comes_to_this_process_does_not_grow_with_what_was_recorded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        collected: list[int] = []
        query = DuckTables.query

        def counted(tables: DuckTables, sql: str, *, is_long: bool = False) -> pa.Table:
            found = query(tables, sql, is_long=is_long)
            collected.append(found.num_rows)
            return found

        monkeypatch.setattr(DuckTables, "query", counted)
        rows = [*demand("a", broker(8000.0)), *demand("b", broker(8000.0)), *demand("c", broker(1000.0))]
        most = []
        for minutes in (2, 2_000):
            collected.clear()
            advice = self.cut(rows, {"a": [8000.0] * minutes, "b": [8000.0] * minutes}, [1000.0] * minutes)
            most.append((sum(collected), [each.limit for each in advice.overrides]))
        assert most[0] == most[1]
        assert most[0][1] == [3500.0, 3500.0]

    def test_a_broker_of_unknown_capacity_is_not_held_against_any(self) -> None:
        rows = [*demand("a", broker(8000.0), broker(9000.0, broker_id=3)), *demand("b", broker(1000.0))]
        capacities = {1: {QuotaType.PRODUCE: 5000.0}}
        advice = self.cut(rows, {"a": [8000.0]}, [], capacities=capacities)
        assert [(each.broker_id, each.at_ms, each.fits) for each in advice.loads] == [(1, 0, False), (3, None, None)]
        assert [each.limit for each in advice.overrides] == [4000.0]

    def test_a_load_without_a_capacity_is_not_judged(self) -> None:
        advice = advise(QuotaType.PRODUCE, even(2), plan=NO_OUTLIERS)

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
    [{"overrides": -1}, {"time_share": -0.1}, {"headroom": 0.9}, {"capacity_share": 0.0}],
)
def test_a_tolerance_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        RecommendPlan(**wrong)


def test_the_least_default_for_reading_is_an_option() -> None:
    readers = even(4, QuotaType.FETCH)
    advice = advise(QuotaType.FETCH, readers, plan=replace(NO_OUTLIERS, fetch_floor=0.0))
    assert (advice.default, advice.is_raised) == (4000.0, False)


def test_the_default_for_reading_lets_a_whole_fetch_through() -> None:
    readers = even(4, QuotaType.FETCH)
    advice = advise(QuotaType.FETCH, readers, plan=NO_OUTLIERS)
    assert advice.lowest_default < 1_048_576
    assert advice.is_raised
    assert advice.default == 1_100_000.0
    assert advice.overrides == ()
    assert "a consumer may get nothing at all" in default_reason(advice)

"""What a load test is asked for, and the plan it becomes."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kafka_quotas.cli.load_test.options import credentials_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.librdkafka import client_properties
from kafka_quotas.loadtest.plan.plan import ClientName, LoadPlan, parse_entity_name, request_size
from kafka_quotas.loadtest.plan.workload import OfferedRate, RateKind, Workload, parse_offered_rate
from kafka_quotas.loadtest.run.journal import quotas_in_force
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient
from kafka_quotas.loadtest.scenario.planning import Environment, client_names, long_enough, scenario_plan
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration, Store

A, B = ClientName(user=None, client_id="a"), ClientName(user=None, client_id="b")


def load(
    does: Workload = Workload.PRODUCE,
    *,
    names: Sequence[ClientName] = (A, B),
    rates: Sequence[str] = ("max",),
    quota: float | None = None,
    record_size: int = 1024,
    **changes: Any,
) -> Scenario:
    """Clients that move records, with one rate for all or one for each."""
    clients = [
        ScenarioClient(
            user=name.user,
            client_id=name.client_id,
            does=does,
            topic="t",
            record_size=record_size,
            rate=parse_offered_rate(rate),
            judge_by=quota,
        )
        for name, rate in zip(names, rates if len(rates) > 1 else rates * len(names), strict=True)
    ]
    return Scenario(name="s", title="s", entities=tuple(clients), **{"duration_s": 10.0, **changes})


def plan_load(
    scenario: Scenario, *, store: Store | None = None, properties: Mapping[str, str] | None = None, **passwords: str
) -> LoadPlan:
    """The plan that a scenario becomes under the quotas of a store, or under none."""
    entries = [] if store is None else store.describe(EVERYTHING)
    environment = Environment(
        bootstrap="127.0.0.1:9092",
        prefix="",
        credentials=lambda name: credentials_of(name, properties or {}, passwords),
        properties=properties or {},
    )
    return scenario_plan(scenario, quotas_in_force(entries, client_names(scenario)), environment, run_id=1)


@pytest.mark.parametrize(
    ("text", "user", "client_id", "label"),
    [
        ("alice/app", "alice", "app", "alice/app"),
        ("/app", None, "app", "app"),
        ("app", None, "app", "app"),
        ("CN=a, O=b/x", "CN=a, O=b", "x", "CN=a, O=b/x"),
        ("alice/team/app", "alice", "team/app", "alice/team/app"),
        ("/team/app", None, "team/app", "team/app"),
    ],
)
def test_entities_are_users_with_client_ids(text: str, user: str | None, client_id: str, label: str) -> None:
    name = parse_entity_name(text)

    assert name == ClientName(user=user, client_id=client_id)
    assert name.label == label


@pytest.mark.parametrize("text", ["", "/", "alice/"])
def test_an_entity_without_a_client_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_entity_name(text)


@pytest.mark.parametrize(
    ("text", "kind", "figure"),
    [
        ("max", RateKind.MAX, 0),
        ("5MB/s", RateKind.BYTES, 5_000_000),
        ("1MiB", RateKind.BYTES, 1_048_576),
        ("80Mbps", RateKind.BYTES, 10_000_000),
        ("200rec/s", RateKind.RECORDS, 200),
        ("0.5 records/s", RateKind.RECORDS, Fraction(1, 2)),
        ("2x-quota", RateKind.QUOTA_MULTIPLE, 2),
        ("1.5x-quota", RateKind.QUOTA_MULTIPLE, Fraction(3, 2)),
    ],
)
def test_rates_are_read_exactly(text: str, kind: RateKind, figure: Fraction) -> None:
    assert parse_offered_rate(text) == OfferedRate(kind=kind, figure=Fraction(figure))


@pytest.mark.parametrize("text", ["", "fast", "0MB/s", "-1MB/s", "8Mb", "xx-quota", "2x"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_offered_rate(text)


def test_rates_are_figures_once_the_quota_is_known() -> None:
    plan = plan_load(load(rates=("1MB/s", "2x-quota"), quota=1e6))

    assert [entity.quota for entity in plan.entities] == [1e6, 1e6]
    assert [entity.arrivals_per_second for entity in plan.entities] == [
        Fraction(1_000_000, 1024),
        Fraction(2_000_000, 1024),
    ]


def test_a_multiple_of_no_quota_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a quota"):
        plan_load(load(rates=("2x-quota",)))


def test_quotas_come_from_a_store_as_they_resolve(tmp_path: Path) -> None:
    store = open_store(f"local:{tmp_path / 'quotas.db'}")
    store.alter(
        [
            Alteration(
                entity=Entity.of(client_id="a"),
                changes={"producer_byte_rate": 5e6, "consumer_byte_rate": float(LONG_MAX)},
            ),
            Alteration(entity=Entity.of(client_id=None), changes={"producer_byte_rate": 1e6}),
        ]
    )

    produced = plan_load(load(), store=store)
    consumed = plan_load(load(Workload.CONSUME), store=store)
    store.close()

    assert [entity.quota for entity in produced.entities] == [5e6, 1e6]
    assert [entity.quota for entity in consumed.entities] == [None, None]


def test_warm_up_is_one_window_unless_given() -> None:
    assert plan_load(load(window=QuotaWindow(samples=3))).warmup_s == 3
    assert plan_load(load(warmup_s=1.5)).warmup_s == 1.5


def test_an_entity_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="named twice"):
        plan_load(load(names=(A, A)))


@pytest.mark.parametrize("size", [0, -1, 2_000_000])
def test_a_record_has_a_size_that_brokers_take(size: int) -> None:
    with pytest.raises(UsageError, match="a record has"):
        plan_load(load(record_size=size))


def test_a_user_needs_a_way_to_be_told() -> None:
    alice = (ClientName(user="alice", client_id="app"),)
    with pytest.raises(UsageError, match="plaintext"):
        plan_load(load(names=alice))
    with pytest.raises(UsageError, match="no password"):
        plan_load(load(names=alice), properties={"security.protocol": "SASL_PLAINTEXT"})

    plan = plan_load(load(names=alice), properties={"security.protocol": "SASL_PLAINTEXT"}, alice="secret")

    assert plan.entities[0].properties == (("sasl.username", "alice"), ("sasl.password", "secret"))
    assert "secret" not in repr(plan)


def test_a_property_of_the_user_wins_over_ours() -> None:
    plan = plan_load(load(quota=1e6), properties={"batch.size": "5000", "client.id": "mine"})

    properties = client_properties(plan, plan.entities[0])

    assert properties["batch.size"] == "5000"
    assert properties["client.id"] == "mine"


@pytest.mark.parametrize(
    ("quota", "window_s", "sharing", "size"),
    [
        (None, 11, 1, 1_000_000),
        (1e3, 11, 1, 1024),
        (2e6, 11, 1, 200_000),
        (2e6, 1, 1, 40_000),
        (2e6, 11, 11, 40_000),
        (500e6, 11, 1, 1_000_000),
    ],
)
def test_requests_are_small_beside_what_the_quota_allows_in_a_window(
    quota: float | None, window_s: float, sharing: int, size: int
) -> None:
    assert request_size(quota, window_s=window_s, sharing=sharing) == size


@pytest.mark.parametrize(
    ("warmup_s", "rates", "needed_s"),
    [(None, ("max",), 55.0), (1.0, ("max",), 65.0), (30.0, ("2MB/s",), 55.0), (None, ("500kB/s",), 0.0)],
)
def test_a_run_lasts_for_five_windows_where_a_quota_holds_a_client_back(
    warmup_s: float | None, rates: tuple[str, ...], needed_s: float
) -> None:
    plan = plan_load(load(quota=1e6, rates=rates, warmup_s=warmup_s))

    assert plan.needed_s == needed_s
    assert long_enough(plan).duration_s == max(plan.duration_s, needed_s)

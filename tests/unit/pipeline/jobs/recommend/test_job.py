"""Recommendations from events: exact replay decides, every value has its reason, and the file is what `apply` reads."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.pipeline.memory_events import Row, memory_events, produced

from kafka_quotas.cli.pipeline.recommend import advice_listing
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quota_files.declarations import SECTIONS, declarations, document_of
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.jobs.recommend.advice import Recommendation
from kafka_quotas.pipeline.jobs.recommend.findings import recommendation_rows, recommended_file, recommended_limits
from kafka_quotas.pipeline.jobs.recommend.job import recommend, recommendation_table
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.stores.files.yaml_reader import yaml_node


def advised(rows: Iterable[Row], *, scope: DefaultScope = DefaultScope.USER, **asked: Any) -> Recommendation:
    plan = RecommendPlan(cluster="c", scope=scope, **asked)
    return recommend(memory_events(rows), plan, step=lambda _: None)


@pytest.fixture(scope="module")
def five() -> Recommendation:
    """Four small users and one large, who is busier at broker 2."""
    small = [row for number in range(1, 5) for row in produced(f"small-{number}", 10_000 * number)]
    return advised([*small, *produced("large", 500_000), *produced("large", 1_000_000, broker_id=2)])


def test_the_default_suffices_for_all_but_the_outlier_and_nothing_much_lower_would(five: Recommendation) -> None:
    (advice,) = five.advices
    needy = next(each for each in advice.neediest if each.user == "small-4")

    assert advice.quota_type is QuotaType.PRODUCE
    assert [each.demand.user for each in advice.overrides] == ["large"]
    assert needy.throttled_share(advice.default) <= 0.01
    assert 30_000 < advice.default < 50_000


def test_the_outlier_gets_headroom_over_its_busiest_broker(five: Recommendation) -> None:
    (override,) = five.advices[0].overrides

    assert override.demand.busiest.broker_id == 2
    assert override.limit >= 1_000_000 * 1.1
    assert override.throttled_share_at_default == 1.0
    assert override.throttled_share == 0.0
    assert override.skew == pytest.approx(4 / 3, rel=0.02)


def test_what_the_default_would_do_to_a_client_that_was_held_back_is_unknown() -> None:
    """It got less than the default, under which a replay of that is not held back, and wants more."""
    small = [row for number in range(1, 5) for row in produced(f"small-{number}", 20_000 * number)]
    held = [row | {"throttle_ms": 50} for row in produced("held", 60_000)]
    found = advised([*small, *held], overrides=1)
    (override,) = found.advices[0].overrides
    assert override.demand.user == "held"
    assert override.demand.peak < found.advices[0].default < override.demand.needed
    assert override.throttled_share_at_default is None
    (own,) = (row for row in advice_listing(found, GroupTree(), ()).table.rows if "held" in str(row[0]))
    assert own[-1] == "unknown"


def test_the_replay_of_the_recommendation_holds_nobody_back_for_longer_than_tolerated(five: Recommendation) -> None:
    assert [each.exceeding_clients for each in five.advices] == [0]


def test_the_file_is_read_back_to_the_recommended_limits(five: Recommendation) -> None:
    text = "".join(recommended_file(five))

    document, problems = document_of(yaml_node(text, "r.yaml", sections=SECTIONS))
    assert document is not None
    read = declarations([document])

    assert not (*problems, *read.problems)
    assert read.desired() == recommended_limits(five.advices)
    assert set(read.desired()) == {Entity.of(user=None), Entity.of(user="large")}
    assert text.startswith("# Recommended from ")
    assert "at broker 2" in text


def test_every_row_of_the_table_carries_its_evidence(five: Recommendation) -> None:
    table = recommendation_table(five)

    assert table["kind"].to_pylist() == ["default", "override"]
    default, override = (json.loads(each) for each in table["evidence"].to_pylist())
    assert (default["clients"], default["clients_with_overrides"]) == (5, 1)
    assert [each["broker_id"] for each in override["brokers"]] == [1, 2]
    assert override["can_be_set"] is True


def test_a_burst_that_the_window_takes_in_needs_no_limit_of_its_size() -> None:
    bursty = advised(produced("bursty", 10_000, burst=5), overrides=0, time_share=0.0)

    (advice,) = bursty.advices
    assert advice.default < 50_000


@pytest.mark.parametrize(
    ("scope", "entity"),
    [
        (DefaultScope.USER, Entity.of(user=None)),
        (DefaultScope.CLIENT_ID, Entity.of(client_id=None)),
        (DefaultScope.PAIR, Entity.of(user=None, client_id=None)),
    ],
)
def test_the_default_is_of_what_was_asked_for(scope: DefaultScope, entity: Entity) -> None:
    result = advised(produced("alice", 10_000), scope=scope)

    assert list(recommended_limits(result.advices)) == [entity]


def test_a_client_without_a_name_is_told_and_left_out_of_the_file() -> None:
    rows = [row | {"client_id": ""} for row in produced("x", 900_000)]
    for number in range(1, 5):
        rows += produced(f"small-{number}", 10_000)
    result = advised(rows, scope=DefaultScope.CLIENT_ID)

    assert list(recommended_limits(result.advices)) == [Entity.of(client_id=None)]
    assert [each["evidence"].get("can_be_set") for each in recommendation_rows(result)] == [None, False]


def test_another_cluster_is_not_looked_at() -> None:
    result = advised([*produced("alice", 10_000), *produced("bob", 90_000, cluster="other")])

    assert [each.user for each in result.advices[0].neediest] == ["alice"]
    assert (result.clients, result.advices[0].clients) == (1, 1)


@pytest.mark.parametrize(
    ("clusters", "named", "message"),
    [
        ((), None, "there are no events"),
        (("a", "b"), None, "the events are of several clusters"),
        (("a",), "b", "there are no events of cluster b"),
    ],
)
def test_an_unclear_cluster_is_refused(clusters: tuple[str, ...], named: str | None, message: str) -> None:
    rows = [row for cluster in clusters for row in produced("alice", 10_000, cluster=cluster)]
    plan = RecommendPlan(cluster=named)

    with pytest.raises(UsageError, match=f"^{message}$"):
        recommend(memory_events(rows), plan, step=lambda _: None)


def test_exempt_traffic_is_not_looked_at() -> None:
    rows = [*produced("alice", 10_000), *(row | {"is_exempt": True} for row in produced("replica", 900_000))]

    assert [each.user for each in advised(rows).advices[0].neediest] == ["alice"]

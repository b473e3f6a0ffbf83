"""Every sentence about a recommendation follows from its figures: table, page and file contradict none of them."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.jobs.recommend.test_advice import broker, demand, even, held, replayed_advice, tried_clients

from kafka_quotas.cli.pipeline.recommend import advice_listing
from kafka_quotas.cli.pipeline.report_sections import limit_figure, recommended_section
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.engine.events import RecordedEvents
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Recommendation
from kafka_quotas.pipeline.jobs.recommend.findings import (
    default_outcome,
    outcome,
    recommendation_rows,
    recommended_file,
    warnings,
)
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

EVENTS = RecordedEvents(count=1000, first_ms=0, last_ms=86_400_000, seconds=86_400)
PLAN = RecommendPlan(overrides=0, headroom=1.0)
UNKNOWN = demand("starved", broker(50.0, **held(50.0, held_share=0.97, is_unknown=True)))


def recommendation(*advices: Advice) -> Recommendation:
    return Recommendation(plan=PLAN, events=EVENTS, cluster="c", observed=None, advices=advices, clients=4)  # type: ignore[arg-type]


def texts(found: Recommendation) -> dict[str, str]:
    """All that is said of a recommendation, by where it is read."""
    listing = advice_listing(found, GroupTree(), ())
    page = recommended_section(found)
    figures = [limit_figure(each).note for each in found.advices]
    return {
        "table": "\n".join([*(" ".join(map(str, row)) for row in listing.table.rows), str(listing.table.caption)]),
        "page": "\n".join(
            [*page.paragraphs, *(" ".join(row) for table in page.tables for row in table.rows), *figures]
        ),
        "file": "".join(recommended_file(found)),
    }


def test_nobody_is_only_said_where_the_replay_throttled_nobody() -> None:
    calm = recommendation(replayed_advice(even(3), PLAN, shares=[0.0, 0.004, 0.0]))
    for place, text in texts(calm).items():
        assert "nobody is throttled for more than 1.00% of its active time" in text, place
        assert "nknown" not in text.replace("days and hours are unknown", ""), place
    (advice,) = calm.advices
    assert default_outcome(advice) == "enough for 3 of 3 clients"


def test_who_is_throttled_in_the_replay_is_named_with_the_share() -> None:
    found = recommendation(replayed_advice(even(3), PLAN, shares=[0.0, 0.0, 0.176]))
    for place, text in texts(found).items():
        assert "nobody" not in text.lower(), place
        assert "user-003 (produce) for 17.6% of the active time" in text, place
        assert "user user-003 would be held back for 17.6%" in text or place == "table", place
    assert default_outcome(found.advices[0]) == (
        "enough for 2 of 3 clients; throttles user-003 for 17.6% of the active time"
    )
    assert limit_figure(found.advices[0]).note == "is enough for 2 of 3 clients, 1 slowed down"


def test_a_client_of_unknown_demand_counts_for_nothing_and_is_named_everywhere() -> None:
    found = recommendation(replayed_advice([*even(2), *UNKNOWN], PLAN, shares=[0.0, 0.0, 0.0]))
    (advice,) = found.advices
    assert (advice.fitting, advice.unknown_default, advice.clients) == (2, 1, 3)
    for place, text in texts(found).items():
        assert "nobody whose demand is known is throttled" in text, place
        assert "unknown for starved" in text, place
    assert "2 of 3 fit" in texts(found)["table"]
    assert "starved produce the default" in texts(found)["table"]
    assert limit_figure(advice).note == "is enough for 2 of 3 clients, 1 unknown"
    (row,) = recommendation_rows(found)
    assert row["evidence"]["clients_under_default"] == {"enough": 2, "unknown": 1, "throttled": 0}


def test_an_unknown_demand_with_a_limit_of_its_own_is_unknown_too() -> None:
    greedy = demand("greedy", broker(90_000.0, **held(90_000.0, held_share=0.9, is_unknown=True)))
    plan = replace(PLAN, overrides=1)
    found = recommendation(replayed_advice([*even(3), *greedy], plan, shares=[0.0] * 4))
    assert [each.demand.user for each in found.advices[0].overrides] == ["greedy"]
    for place, text in texts(found).items():
        assert "unknown for greedy (produce)" in text, place
        assert "enough for 3 of 3 clients" in text or place == "table", place


@pytest.mark.parametrize("count", [1, 2, 5, 6, 40])
def test_a_sentence_names_some_and_counts_the_others(count: int) -> None:
    found = recommendation(replayed_advice(even(count), PLAN, shares=[0.5] * count))
    (sentence,) = outcome(found)
    assert sentence.count("for 50.0%") == min(count, 5)
    assert (f"{count - 5} more" in sentence) == (count > 5)
    assert (" are throttled" in sentence) == (count > 1)


def test_warnings_are_in_the_file_and_on_the_page() -> None:
    found = recommendation(replayed_advice([*even(2), *UNKNOWN], PLAN, shares=[0.5, 0.0, 0.0]))
    found = replace(found, events=replace(EVENTS, seconds=1))
    lines = list(warnings(found))
    assert len(lines) == 3
    text, page = "".join(recommended_file(found)), recommended_section(found).paragraphs
    for line in lines:
        assert f"# {line}\n" in text
        assert any(line[1:] in paragraph for paragraph in page)


def test_unknown_clients_are_counted_where_the_rows_are_as_each_is_judged_by_itself() -> None:
    shapes = [(rate, share, is_unknown) for rate in (10.0, 30.0) for share in (0.005, 0.9) for is_unknown in (0, 1)]
    rows = [
        row
        for number, (first, second) in enumerate((one, two) for one in shapes for two in shapes)
        for row in demand(
            f"user-{number:03}",
            *(
                broker(50.0, **held(rate, held_share=share, is_unknown=bool(is_unknown)), broker_id=place)
                for place, (rate, share, is_unknown) in enumerate((first, second))
                if place == 0 or (rate, share) != first[:2]  # which of two equals counts is open
            ),
        )
    ]
    clients = tried_clients(rows, PLAN)
    named = clients.named({QuotaType.PRODUCE: 0.0})
    unknown = clients.tables.query(f"SELECT user, is_unknown FROM {clients.rows}").to_pylist()
    found = {row["user"]: row["is_unknown"] for row in unknown}
    assert found == {each.user: each.is_unknown for each in named}
    assert 0 < sum(found.values()) < len(found)

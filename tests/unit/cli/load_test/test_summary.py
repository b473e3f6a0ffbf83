"""What the page of a load test says on top: no more than was judged, in plain English."""

from dataclasses import replace

import pytest
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.cli.charts.html_page import KeyFigure, Mood
from kafka_quotas.cli.load_test.views.page import load_page, summary_text
from kafka_quotas.cli.load_test.views.view import quota_text
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.plan.client_verdict import ObservationKind
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, QuotaEffect
from kafka_quotas.loadtest.verdict.judging import Evidence


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chart is looked at here, and each takes a third of a second to draw."""
    for name in ("bars_svg", "curves_svg", "series_svg"):
        monkeypatch.setattr(f"kafka_quotas.cli.load_test.views.charts.{name}", lambda *_, **__: "")


def named(label: str, of: ClientResult) -> ClientResult:
    return replace(of, name=ClientName(user=None, client_id=label))


def figure(run: LoadResult, label: str) -> KeyFigure:
    return next(each for each in load_page(run).figures if each.label == label)


def test_who_was_held_and_who_got_all() -> None:
    run = result(greedy(), named("other", greedy()), unlimited())

    assert summary_text(run) == (
        "greedy and other wanted more and were held to their quotas, to within 0.2%. "
        "alice/free got all that it asked for."
    )


def test_a_client_that_was_not_held_is_named_with_its_rate() -> None:
    assert summary_text(result(greedy(ok=False))) == (
        "greedy was not held to its quota: it got 3 MB/s where 2 MB/s are allowed."
    )


def test_a_client_that_got_less_is_not_said_to_have_exceeded_its_quota() -> None:
    short = greedy(ok=False)
    short = replace(short, verdict=replace(short.verdict, achieved=841_200.0, ratio=0.42))

    assert summary_text(result(short)) == "greedy got too little: 841.2 kB/s of the 2 MB/s that its quota allows."


def test_many_clients_are_counted() -> None:
    assert summary_text(result(*(named(f"c{number}", greedy()) for number in range(9)))).startswith(
        "9 clients (c0, c1 and others) wanted more and were held"
    )


def test_a_void_run_says_nothing_else() -> None:
    run = result(greedy(), evidence=Evidence(outages=("b:9092 did not answer any more from 9 s on",)))

    assert summary_text(run) == "This run proves nothing: b:9092 did not answer any more from 9 s on."


@pytest.mark.parametrize(
    ("alone_us", "bounds", "verdict"),
    [
        (12_000, (2.0, 8.0), "was spared by the quotas, without which it waits 4 times as long"),
        (12_000, (0.9, 1.1), "waits as long without the quotas as with them"),
        (12_000, (0.5, 30.0), "was barely affected; the run can't show whether the quotas are why"),
        (12_000, None, "was barely affected; the run can't show whether the quotas are why"),
        (500, (2.0, 8.0), "was disturbed by its neighbours"),
    ],
)
def test_what_a_neighbour_felt(alone_us: int, bounds: tuple[float, float] | None, verdict: str) -> None:
    control = replace(unlimited(), control=True)
    solo = {control.key: replace(control.response, p99_us=alone_us)}
    effects = {}
    if bounds is not None:
        low, high = bounds
        effects[control.key] = QuotaEffect(with_us=(1, 1), without_us=(4, 4), ratio=4.0, low=low, high=high)
    text = summary_text(result(greedy(), control, evidence=Evidence(solo=solo, effects=effects)))

    assert f"alice/free {verdict}" in text
    assert "its p99 was 12.3 ms alongside the others" in text


def test_judgements_are_counted_as_they_are() -> None:
    part = Delivery(acked=4900, found=1150, unchecked="the topic no longer keeps the first records")
    run = result(greedy(), evidence=Evidence(deliveries={greedy().key: part}))
    bad = result(greedy(ok=False))

    assert figure(run, "Verdict").note == "judgements: 2 met, 1 not checked, 0 failed"
    assert figure(bad, "Verdict").note == "judgements: 1 met, 1 failed"
    assert "1 judgement of 3 could not be checked." in summary_text(run)


@pytest.mark.parametrize(
    ("delivery", "note", "mood"),
    [
        (
            Delivery(acked=4900, found=1150, unchecked="time ran out"),
            "1,150 of them read back; none lost, none twice among these",
            Mood.PLAIN,
        ),
        (Delivery(acked=4900, found=4900), "4,900 of them read back; none lost, none twice", Mood.GOOD),
        (
            Delivery(acked=4900, found=4899, lost=1),
            "4,899 of them read back; 1 lost, 0 duplicated, 0 failed",
            Mood.BAD,
        ),
        (None, "none read back; loss was not checked", Mood.PLAIN),
    ],
)
def test_delivery_says_how_much_was_read_back(delivery: Delivery | None, note: str, mood: Mood) -> None:
    deliveries = {} if delivery is None else {greedy().key: delivery}
    run = result(greedy(), unlimited(), evidence=Evidence(deliveries=deliveries))
    shown = figure(run, "Written records")

    assert (shown.value, shown.note, shown.mood) == ("4,900", note, mood)


def test_a_client_has_its_real_quotas() -> None:
    poller = unlimited(Workload.REQUESTS)
    unjudged = replace(poller, verdict=replace(poller.verdict, kind=ObservationKind.UNJUDGED))

    assert quota_text(replace(unjudged, quotas=(("request_percentage", 2.0),))) == "2% of a thread"
    assert quota_text(unjudged) == ""
    assert quota_text(poller) == "unlimited"
    assert quota_text(replace(greedy(), quotas=(("producer_byte_rate", 2e6), ("request_percentage", 50.0)))) == (
        "2 MB/s, 50% of a thread"
    )


def test_the_page_has_the_run_id() -> None:
    assert "Run 000000000000feed." in load_page(result(greedy())).sections[-1].paragraphs[-1]

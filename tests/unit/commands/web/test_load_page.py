"""The live page of a load test, by the states of a run."""

import asyncio
import json
from typing import Any

from kafka_quotas.commands.web.load_page import MAX_CLIENTS, MAX_POINTS, LoadPage
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress


def client(name: str, *, rate: float = 1e6, throttled_ms: float = 0.0, quota: float | None = 2e6) -> ClientProgress:
    load = ClientLoad(name=ClientName(user=None, client_id=name), workload=Workload.PRODUCE, topic="t", quota=quota)
    return ClientProgress(
        entity=load, rate=rate, acked=1, waiting=2, throttle_count=int(throttled_ms > 0), throttle_sum_ms=throttled_ms
    )


def progress(elapsed_s: float, *clients: ClientProgress) -> RunProgress:
    return RunProgress(elapsed_s=elapsed_s, total_s=1000.0, warming_up=elapsed_s < 5, entities=clients)


def document(page: LoadPage) -> Any:
    return json.loads(asyncio.run(page.routes()["/api/run"]({})).body)  # type: ignore[arg-type]


def test_before_the_load_the_page_shows_the_steps() -> None:
    page, noted = LoadPage("load-test x"), []
    page.step(noted.append)("setting 2 quotas")
    found = document(page)
    assert (found["phase"], found["steps"], found["clients"]) == ("preparing", ["setting 2 quotas"], [])
    assert noted == ["setting 2 quotas"]


def test_a_client_has_its_rate_its_bound_and_the_way_there() -> None:
    page, seen = LoadPage("x"), []
    watch = page.watcher(seen.append)
    watch(progress(1.0, client("app", rate=3e6)))
    watch(progress(6.0, client("app", rate=1.5e6, throttled_ms=900)))
    (shown,) = document(page)["clients"]
    assert (shown["rate"], shown["bound"], shown["share"]) == ("1.5 MB/s", "2 MB/s", 0.75)
    assert shown["throttled"] == "1x, 900 ms"
    assert [point["text"] for point in shown["points"]] == ["1 s: 3 MB/s", "6 s: 1.5 MB/s"]
    assert len(seen) == 2


def test_the_axis_grows_with_the_rate() -> None:
    page = LoadPage("x")
    page.update(progress(1.0, client("app", rate=9e6)))
    page.update(progress(3.0, client("app", rate=2e6)))
    (shown,) = document(page)["clients"]
    assert max(point["rate"] for point in shown["points"]) < shown["top"]
    assert shown["top_text"] == "9.9 MB/s"


def test_a_client_without_a_bound_has_none() -> None:
    page = LoadPage("x")
    page.update(progress(1.0, client("app", quota=None), client("still", rate=0.0, quota=None)))
    for shown in document(page)["clients"]:
        assert (shown["bound"], shown["share"]) == (None, None)


def test_of_many_clients_the_throttled_ones_are_shown_in_their_order() -> None:
    page = LoadPage("x")
    many = [client(f"c{number}", throttled_ms=float(number)) for number in range(MAX_CLIENTS + 3)]
    page.update(progress(1.0, *many))
    found = document(page)
    assert [each["client"] for each in found["clients"]] == [f"c{number}" for number in range(3, MAX_CLIENTS + 3)]
    assert found["left_out"] == 3


def test_a_long_run_keeps_a_bounded_number_of_points() -> None:
    page = LoadPage("x")
    for tenth in range(10_000):
        page.update(progress(tenth / 10, client("app")))
    points = document(page)["clients"][0]["points"]
    assert MAX_POINTS / 2 <= len(points) <= MAX_POINTS
    assert points[0]["at_s"] < 20
    assert points[-1]["at_s"] > 980


def test_the_next_variant_begins_anew() -> None:
    page = LoadPage("x")
    page.update(progress(900.0, client("app")))
    page.update(progress(1.0, client("app")))
    assert [point["at_s"] for point in document(page)["clients"][0]["points"]] == [1.0]

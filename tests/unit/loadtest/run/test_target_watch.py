"""What a watch of the target and of the clock reports."""

import pytest

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan, PlannedRestart
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.target_watch import ClockWatch, Outages, TargetWatch


def test_a_server_that_was_never_there_has_no_outage() -> None:
    """The client may have no login there: the run itself reports that."""
    outages = Outages("b:9092")
    outages.failed(1.0, is_silence=False)

    assert outages.findings == ()


@pytest.mark.parametrize(
    ("failed_s", "is_silence", "answered_s", "finding"),
    [
        ((10.0,), False, None, "b:9092 did not answer any more from 10 s on"),
        ((10.0, 11.0, 12.0), False, 13.0, "b:9092 did not answer from 10 s to 13 s"),
        ((10.0,), True, 18.2, "b:9092 did not answer from 10 s to 18 s"),
        (
            (10.0,),
            False,
            10.1,
            "b:9092 closed a connection after 10 s and took another at once: it was restarted, or cut off",
        ),
    ],
)
def test_outages_and_restarts(
    failed_s: tuple[float, ...], is_silence: bool, answered_s: float | None, finding: str
) -> None:
    outages = Outages("b:9092")
    outages.answered(1.0)
    for asked_s in failed_s:
        outages.failed(asked_s, is_silence=is_silence)
    if answered_s is not None:
        outages.answered(answered_s)
        outages.answered(answered_s + 1)

    assert outages.findings == (finding,)


def test_each_outage_is_reported() -> None:
    outages = Outages("b:9092")
    for asked_s in (1.0, 11.0):
        outages.answered(asked_s)
        outages.failed(asked_s + 1, is_silence=False)
        outages.answered(asked_s + 5)

    assert len(outages.findings) == 2


@pytest.mark.parametrize(
    ("outages", "restarts", "findings"),
    [
        ([(20.5, 26.0)], ("b:9092 did not answer from 20 s to 26 s, as planned",), ()),
        (
            [(21.0, 21.1), (23.0, 28.0)],
            (
                (
                    "b:9092 closed a connection after 21 s and took another at once: it was restarted, or cut off, "
                    "as planned"
                ),
                "b:9092 did not answer from 23 s to 28 s, as planned",
            ),
            (),
        ),
        ([], (), ("b:9092 was not restarted from 20 s to 30 s, as planned",)),
        (
            [(10.0, 12.0)],
            (),
            ("b:9092 did not answer from 10 s to 12 s", "b:9092 was not restarted from 20 s to 30 s, as planned"),
        ),
        (
            [(22.0, 25.0), (40.0, 42.0)],
            ("b:9092 did not answer from 22 s to 25 s, as planned",),
            ("b:9092 did not answer from 40 s to 42 s",),
        ),
        (
            [(22.0, 33.0)],
            (),
            ("b:9092 did not answer from 22 s to 33 s", "b:9092 was not restarted from 20 s to 30 s, as planned"),
        ),
        (
            [(22.0, None)],
            (),
            (
                "b:9092 did not answer any more from 22 s on",
                "b:9092 was not restarted from 20 s to 30 s, as planned",
            ),
        ),
    ],
)
def test_a_planned_restart_alone_is_allowed_and_only_in_its_time(
    outages: list[tuple[float, float | None]], restarts: tuple[str, ...], findings: tuple[str, ...]
) -> None:
    seen = Outages("b:9092", [PlannedRestart(server="1", at_s=20.0, within_s=10.0)])
    seen.answered(1.0)
    for since_s, until_s in outages:
        seen.failed(since_s, is_silence=False)
        if until_s is not None:
            seen.answered(until_s)

    assert (seen.restarts, seen.findings) == (restarts, findings)


def test_a_restart_of_a_server_that_is_not_there_is_a_finding() -> None:
    plan = LoadPlan(
        bootstrap="b:9092",
        entities=(ClientLoad(name=ClientName(user=None, client_id="app"), workload=Workload.REQUESTS),),
        duration_s=60.0,
        warmup_s=0.0,
        window=DEFAULT_WINDOW,
        restarts=(PlannedRestart(server="7", at_s=20.0, within_s=10.0),),
    )

    assert TargetWatch(plan).findings == ("no server of the target is 7, which was to be restarted",)


@pytest.mark.parametrize(
    ("steps_ms", "findings"),
    [
        ((0, 0, 0), ()),
        ((0, 100, 200, 300, 400, 500, 600), ()),  # slewed
        ((0, 0, 3200, 3200), ("the clock was set forward by 3.2 s after 2 s",)),
        ((0, -900, -900), ("the clock was set back by 0.9 s after 1 s",)),
    ],
)
def test_steps_of_the_clock(steps_ms: tuple[int, ...], findings: tuple[str, ...]) -> None:
    watch = ClockWatch()
    for second, step_ms in enumerate(steps_ms):
        watch.look(wall_ms=1e12 + second * 1000 + step_ms, monotonic_ms=second * 1000, elapsed_s=second)

    assert tuple(watch.findings) == findings

"""What a watch of the target and of the clock reports."""

import pytest

from kafka_quotas.loadtest.run.target_watch import ClockWatch, Outages


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

    assert watch.findings == findings

"""What a quota promises greedy, modest and unlimited clients."""

import pytest

from kafka_quotas.loadtest.cycles import Direction
from kafka_quotas.loadtest.verdict import EntityVerdict, Kind, Observation, entity_verdict


def steady(rate: float, *, seconds: int = 15) -> list[tuple[float, int]]:
    return [(float(t_ms), int(rate / 100)) for t_ms in range(0, seconds * 1000, 10)]


def judged(rate: float, *, offered: float | None, quota: float | None, throttled: int = 0) -> EntityVerdict:
    return entity_verdict(
        Observation(acks=steady(rate), offered_bytes_per_second=offered, throttle_count=throttled),
        quota_bytes_per_second=quota,
        window_ms=3000,
        warmup_ms=3000,
        direction=Direction.PRODUCE,
    )


@pytest.mark.parametrize(
    ("rate", "offered", "quota", "throttled", "kind", "ok"),
    [
        (1e6, None, 1e6, 9, Kind.GREEDY, True),
        (1e6, 2e6, 1e6, 9, Kind.GREEDY, True),
        (1.2e6, None, 1e6, 9, Kind.GREEDY, False),
        (0.8e6, None, 1e6, 9, Kind.GREEDY, False),
        (0.5e6, 0.5e6, 1e6, 0, Kind.MODEST, True),
        (0.5e6, 0.5e6, 1e6, 2, Kind.MODEST, True),  # a burst may be held back, as long as all of it gets through
        (0.4e6, 0.5e6, 1e6, 9, Kind.MODEST, False),
        (5e6, 5e6, None, 0, Kind.UNLIMITED, True),
        (5e6, None, None, 0, Kind.UNLIMITED, True),
        (5e6, 5e6, None, 1, Kind.UNLIMITED, False),
        (3e6, 5e6, None, 0, Kind.UNLIMITED, False),
    ],
)
def test_verdicts(
    rate: float, offered: float | None, quota: float | None, throttled: int, kind: Kind, ok: bool
) -> None:
    verdict = judged(rate, offered=offered, quota=quota, throttled=throttled)

    assert (verdict.kind, verdict.ok) == (kind, ok)
    assert verdict.ratio == (None if quota is None else pytest.approx(rate / quota, rel=1e-3))
    assert "MB/s" in verdict.evidence or "kB/s" in verdict.evidence


def test_a_client_that_got_nothing_is_no_success() -> None:
    nothing = Observation(acks=[], offered_bytes_per_second=None, throttle_count=0)

    for quota in (None, 1e6):
        verdict = entity_verdict(
            nothing, quota_bytes_per_second=quota, window_ms=3000, warmup_ms=0, direction=Direction.PRODUCE
        )
        assert not verdict.ok

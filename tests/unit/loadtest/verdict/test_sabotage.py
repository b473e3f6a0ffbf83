"""Whether a greedy client's verdict fails when what holds it is broken during the run, on a simulated quota.

What is changed in the store voids a run by its watch. These are the changes that no watch sees: the enforcer no longer
does what the store says.
"""

import random
from collections.abc import Callable

import pytest
from tests.support.load.closed_loop import CLIENT, START_MS

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.loadtest.plan.throttle_cycles import ClientVerdict
from kafka_quotas.loadtest.verdict.client_verdict import Observation, entity_verdict

QUOTA = 1e6
REQUEST = 20_000
RUN_MS = 30_000
WINDOW_MS = 3_000
LINK_BYTES_PER_MS = 20_000


def never(_t_ms: float) -> float:
    return 0.0


def verdict(
    *,
    factor: float = 1.0,
    at: float = 1.0,
    pause_ms: Callable[[float], float] = never,
    end: float = 1.0,
    window: QuotaWindow | None = None,
) -> ClientVerdict:
    """The verdict on a client whose quota is `factor` of what it should be from the share `at` of the run on.

    It pauses before a request for `pause_ms` of the time, and gets no answer after the share `end` of the run.
    """
    manager = ClientQuotaManager(QuotaType.PRODUCE, window or QuotaWindow(samples=3))
    manager.update_quota(Entity.of(client_id=CLIENT[1]), QUOTA)
    now_ms, acks, longest_ms, is_changed = 0.0, [], 0, False
    while now_ms < RUN_MS * end:
        if not is_changed and now_ms >= RUN_MS * at:
            is_changed = True
            manager.update_quota(Entity.of(client_id=CLIENT[1]), QUOTA * factor)
        now_ms += REQUEST / LINK_BYTES_PER_MS + pause_ms(now_ms)
        acks.append((now_ms, REQUEST))
        throttle_ms = manager.record_and_throttle_ms(*CLIENT, REQUEST, START_MS + int(now_ms))
        longest_ms = max(longest_ms, throttle_ms)
        now_ms += throttle_ms
    seen = Observation(
        acks=[ack for ack in acks if ack[0] <= RUN_MS],
        offered=None,
        throttle_count=len(acks),
        elapsed_ms=RUN_MS,
        end_ms=RUN_MS,
        patience_ms=longest_ms + 2000,
    )
    return entity_verdict(seen, quota=QUOTA, window_ms=WINDOW_MS, warmup_ms=WINDOW_MS)


@pytest.mark.parametrize("at", [0.1, 0.5])
@pytest.mark.parametrize("factor", [1000.0, 2.0, 0.5], ids=["removed", "doubled", "halved"])
def test_a_quota_that_is_broken_during_the_run_is_not_held(factor: float, at: float) -> None:
    assert not verdict(factor=factor, at=at).ok


def test_a_quota_that_is_removed_for_the_last_tenth_of_the_run_is_not_held() -> None:
    assert not verdict(factor=1000.0, at=0.9).ok


@pytest.mark.parametrize("end", [0.1, 0.5, 0.8])
def test_a_client_without_answers_up_to_the_end_is_not_held(end: float) -> None:
    assert not verdict(end=end).ok


def test_a_client_that_stands_still_for_a_window_in_the_middle_is_not_held() -> None:
    still = [True]

    def once(t_ms: float) -> float:
        if t_ms > RUN_MS / 2 and still:
            still.clear()
            return 2.0 * WINDOW_MS
        return 0.0

    assert not verdict(pause_ms=once).ok


@pytest.mark.parametrize("samples", [2, 4])
def test_an_enforcer_with_another_window_still_keeps_the_rate(samples: int) -> None:
    """Its throttle times differ, and they are judged apart."""
    assert verdict(window=QuotaWindow(samples=samples)).ok


@pytest.mark.parametrize("seed", range(20))
def test_a_busy_machine_does_not_break_a_quota_that_is_kept(seed: int) -> None:
    """Every fiftieth request or so waits for a core, for up to a tenth of a second."""
    source = random.Random(seed)

    def starved(_t_ms: float) -> float:
        return source.uniform(0, 100) if source.random() < 0.02 else 0.0

    found = verdict(pause_ms=starved)

    assert found.ok, found.evidence

"""The verdict on a client whose quota the run lowers: by the new quota, from when it has come down to it."""

from dataclasses import replace

import pytest
from tests.support.load.recordings import RecordedClient, recorded, run_of

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.loadtest.plan.plan import LaterQuota
from kafka_quotas.loadtest.results.result import ClientResult
from kafka_quotas.loadtest.verdict.thresholds import METRICS

OLD, NEW = 2e6, 1e6
CHANGED_MS, RUN_MS = 20_000, 80_000
REQUEST = 20_000
START_MS = 1_700_000_000_000


def lowered(*, in_force_ms: float) -> ClientResult:
    """The result of a greedy client under Kafka's algorithm, whose quota falls at `in_force_ms` at the enforcer."""
    client: RecordedClient = recorded(quota=OLD)
    client = replace(client, entity=replace(client.entity, later=LaterQuota(at_s=CHANGED_MS / 1000, quota=NEW)))
    manager = ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=3))
    manager.update_quota(Entity.of(client_id="app"), OLD)
    now_ms, is_changed = 0.0, False
    while now_ms < RUN_MS:
        if now_ms >= in_force_ms and not is_changed:
            is_changed = True
            manager.update_quota(Entity.of(client_id="app"), NEW)
        now_ms += 1
        throttle_ms = manager.record_and_throttle_ms("ANONYMOUS", "app", REQUEST, START_MS + int(now_ms))
        client.recorder.response(int(now_ms * 1e6), charged=REQUEST, throttle_ms=throttle_ms)
        now_ms += throttle_ms
    return run_of(client, elapsed_s=RUN_MS / 1000).entities[0]


def test_it_is_judged_by_the_new_quota() -> None:
    client = lowered(in_force_ms=CHANGED_MS)

    assert client.verdict.ok, client.verdict.evidence
    assert client.verdict.quota == NEW
    assert client.verdict.ratio == pytest.approx(1.0, abs=0.02)
    settled_ms = METRICS["settled"].of(client)
    assert settled_ms is not None
    assert 0 <= settled_ms < 6_000
    assert "1 MB/s was set after 20 s and held" in client.verdict.evidence


def test_a_quota_that_holds_late_takes_longer() -> None:
    soon, late = (METRICS["settled"].of(lowered(in_force_ms=CHANGED_MS + delay_ms)) for delay_ms in (0, 10_000))

    assert soon is not None
    assert late is not None
    assert late > soon + 8_000


def test_a_quota_that_is_never_lowered_is_not_held() -> None:
    client = lowered(in_force_ms=RUN_MS)

    assert not client.verdict.ok
    assert METRICS["settled"].of(client) is None
    assert "it never came down to 1 MB/s" in client.verdict.evidence

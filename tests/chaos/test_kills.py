"""A few kills of the run of hundreds (`python -m tests.chaos --kills 100`), and what judges them."""

import logging
from pathlib import Path

import pytest
from tests.chaos.kills import (
    BURST_BYTES,
    QUOTA,
    REQUEST_BYTES,
    SLACK_S,
    DaemonKill,
    Victim,
    drawn,
    forgiven,
    kills,
    longest_unsaved_ms,
)
from tests.support.brokers.fake_broker import connected, fake_broker, receive_frame
from tests.support.brokers.java_process import java
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import DaemonProcess, set_quota, store_url
from tests.support.daemon.quota_bound import Passed, excess_bytes
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.sharing.state import SAVE_S

SEED = 20261122
ALLOWED_BYTES = BURST_BYTES + REQUEST_BYTES + QUOTA * SLACK_S


@pytest.mark.integration
@pytest.mark.timeout(900)  # on a busy machine each start of a server takes a minute
@pytest.mark.skipif(java() is None, reason="needs Java to start real servers, and there is no java on the path")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python leaves them behind
@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.long)])
def test_whoever_is_killed_nothing_is_lost_or_doubled_and_nobody_unlimited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    caplog.set_level(logging.CRITICAL, logger="kafka")
    result = kills(SEED, count, tmp_path, print)
    assert set(result.kills) == set(Victim)
    assert [client for client in result.clients if not client.is_right] == []
    assert result.longest_forgotten_ms <= longest_unsaved_ms()


def test_a_daemon_that_dies_soon_after_every_start_forgives_nobody(tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=None), producer_byte_rate=20_000.0)
    state = tmp_path / "state"
    throttled = []
    with fake_broker(throttling_broker) as broker:
        options = ["--upstream", broker.address, "--listen", "127.0.0.1:0", "--store", store_url(tmp_path)]
        for _ in range(2):
            daemon = DaemonProcess([*options, "--control", str(tmp_path / "c.sock"), "--state-file", str(state)])
            try:
                with connected(daemon.bootstrap) as client:
                    client.sendall(produce(1, size=250_000))
                    throttled.append(throttle_of(receive_frame(client), -4))
                    await_true(lambda: "RateBucket" in state_text(state), "the debt is saved", timeout_s=SAVE_S - 1)
            finally:
                daemon.kill()
    first_ms, second_ms = throttled
    assert second_ms > 1.5 * first_ms


def state_text(state: Path) -> str:
    """What a state file holds, nothing where there is none."""
    return state.read_text() if state.exists() else ""


def test_the_same_seed_draws_the_same_kills() -> None:
    assert list(drawn(7, 100)) == list(drawn(7, 100))
    assert list(drawn(7, 100)) != list(drawn(8, 100))
    assert sum(len(kill.victims) for kill in drawn(7, 100)) == 100


def held(seconds: int, *, amnesties: int) -> list[Passed]:
    """What passes of a client in debt: its quota, and a whole burst again after each amnesty, evenly apart."""
    passed = [Passed(at_ms=1000 * second, size=QUOTA) for second in range(seconds)]
    at_s = [seconds * number // amnesties + 1 for number in range(amnesties)]
    passed += [Passed(at_ms=1000 * second, size=BURST_BYTES) for second in at_s]
    return sorted(passed, key=lambda each: each.at_ms)


def test_a_restart_that_forgets_debts_is_found() -> None:
    ends = [DaemonKill(at_ms=1000 * at_s, started_ms=0, saved_ms=1000 * at_s - 3000) for at_s in (30, 60, 90)]
    times_ms = [end.at_ms for end in ends]

    def excess(passed: list[Passed]) -> float:
        return excess_bytes(passed, forgiven(passed, ends, times_ms), bytes_per_second=QUOTA)

    assert excess(held(120, amnesties=1)) <= ALLOWED_BYTES
    assert excess(held(120, amnesties=4)) > ALLOWED_BYTES


def test_the_excess_is_that_of_the_worst_interval() -> None:
    passed = [Passed(at_ms=0, size=100), Passed(at_ms=10_000, size=500), Passed(at_ms=11_000, size=500)]
    assert excess_bytes(passed, [], bytes_per_second=10) == 990
    assert excess_bytes(passed, [Passed(at_ms=10_500, size=200)], bytes_per_second=10) == 790

"""What a daemon remembers across a restart: figures of every kind of bucket, the file, and what can't be taken."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.clock import VirtualClock
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import Algorithm, ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.notice import Notice
from kafka_quotas.enforcement.policy import Policy
from kafka_quotas.enforcement.state_file import StateError, read_state, write_state
from kafka_quotas.enforcement.state_keeper import StateKeeper
from kafka_quotas.enforcement.terms import EntityTerms, Mode, Scope, TermsBook
from kafka_quotas.stores.store import QuotaEntry

START_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)
APP = Entity.of(client_id="app")
KINDS = [
    (QuotaType.PRODUCE, Algorithm.WINDOW, MutationAlgorithm.TOKEN_BUCKET),
    (QuotaType.REQUEST, Algorithm.WINDOW, MutationAlgorithm.TOKEN_BUCKET),
    (QuotaType.PRODUCE, Algorithm.SMOOTH, MutationAlgorithm.TOKEN_BUCKET),
    *((QuotaType.CONTROLLER_MUTATION, Algorithm.WINDOW, mutations) for mutations in MutationAlgorithm),
]
steps = st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 3000)), min_size=1, max_size=25)


def manager(kind: tuple[QuotaType, Algorithm, MutationAlgorithm]) -> ClientQuotaManager:
    quota_type, algorithm, mutations = kind
    made = ClientQuotaManager(quota_type, WINDOW, algorithm, mutations=mutations)
    made.update_quota(APP, 1000.0)
    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0].value}-{kind[1].value}-{kind[2].value}")
@settings(max_examples=40, deadline=None)
@given(before=steps, after=steps)
def test_a_bucket_that_is_given_its_memory_back_goes_on_as_if_nothing_had_happened(
    kind: tuple[QuotaType, Algorithm, MutationAlgorithm], before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    first, second, now_ms = manager(kind), manager(kind), START_MS
    for delta_ms, amount in before:
        now_ms += delta_ms
        first.record_and_throttle_ms("u", "app", amount, now_ms)
    for memory in first.memories():
        second.remember(memory, 0)
    for delta_ms, amount in after:
        now_ms += delta_ms
        expected = first.record_and_throttle_ms("u", "app", amount, now_ms)
        assert second.record_and_throttle_ms("u", "app", amount, now_ms) == expected


def test_a_memory_of_another_kind_or_window_is_refused() -> None:
    produce = manager(KINDS[0])
    produce.record_and_throttle_ms("u", "app", 5000, START_MS)
    (memory,) = produce.memories()
    with pytest.raises(ValueError, match="RateBucket is no SmoothBucket"):
        manager(KINDS[2]).remember(memory, 0)
    for step in range(4):
        produce.record_and_throttle_ms("u", "app", 1, START_MS + 1000 * step)
    (longer,) = produce.memories()
    with pytest.raises(ValueError, match="no ring of 2 samples"):
        ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=2, window_s=1)).remember(longer, 0)


class Kept:
    """A policy, its clock and its keeper, over a file."""

    def __init__(self, path: Path, *, now_ms: int = START_MS, window: QuotaWindow = WINDOW) -> None:
        cluster = EntityTerms(entity=Entity.of(client_id="wide"), settings={"scope": Scope.CLUSTER})
        smooth = EntityTerms(entity=Entity.of(client_id="smooth"), settings={"mode": Mode.SMOOTH})
        self.policy = Policy(window, book=TermsBook(entities=(cluster, smooth)))
        quotas = {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0}
        self.policy.apply([QuotaEntry(entity=Entity.of(client_id=None), quotas=quotas)])
        self.clock = VirtualClock(now_ms)
        self.said: list[Notice] = []
        self.keeper = StateKeeper(
            path,
            self.policy,
            clock=self.clock,
            settings=(f"{window.samples} x {window.window_s} s",),
            bootstrap=lambda: 1,
            notify=self.said.append,
        )

    def record(self, node_id: int | None, client_id: str, amount: int) -> int:
        client = self.policy.broker(node_id).client("u", client_id)
        return client.produce.record(amount, self.clock.now_ms())


def test_a_restart_forgives_nobody(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    assert before.record(1, "app", 9000) == 7000
    assert before.record(2, "app", 5000) == 3000
    assert before.record(1, "wide", 4000) == 2000
    assert before.record(1, "smooth", 4000) == 3000
    before.policy.broker(1).client("u", "app").mutation.record(10, START_MS)
    before.keeper.save()
    after = Kept(tmp_path / "state", now_ms=START_MS + 500)
    after.keeper.restore()
    assert after.record(None, "app", 0) == 7000 - 500
    after.policy.name_bootstrap(1)
    assert after.record(1, "app", 0) == 7000 - 500
    assert after.record(2, "app", 0) == 3000 - 500
    assert after.record(3, "wide", 0) == 2000 - 500
    assert after.record(1, "smooth", 0) == 3000 - 500
    assert after.policy.broker(1).client("u", "app").mutation.record(1, START_MS + 500) == 6500
    (notice,) = after.said
    assert (notice.event, notice.fields["buckets"], notice.fields["age_ms"]) == ("state restored", 5, 500)


def test_a_clock_that_was_set_back_makes_nobody_wait_longer(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    assert before.record(1, "app", 9000) == 7000
    before.keeper.save()
    after = Kept(tmp_path / "state", now_ms=START_MS - 3_600_000)
    after.keeper.restore()
    assert after.record(None, "app", 0) == 7000


def test_what_can_not_hold_anybody_back_any_more_is_not_saved(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "state")
    kept.record(1, "old", 9000)
    kept.clock.advance(7000)
    kept.record(1, "new", 9000)
    kept.keeper.save()
    state = read_state(tmp_path / "state")
    assert state is not None
    assert [bucket.memory.name for bucket in state.buckets] == [("", "new")]


def test_no_file_is_a_first_start(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "absent")
    kept.keeper.restore()
    assert kept.said == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"{}", b"[]", b'{"v": 9}', b'{"v":1,"saved_ms":1,"settings":["3 x 1 s"],"buckets":[{"broker":1}]}'],
)
def test_a_file_that_is_no_state_is_said_and_every_bucket_starts_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    kept = Kept(tmp_path / "state")
    kept.keeper.restore()
    assert [notice.event for notice in kept.said] == ["state can't be restored; every bucket starts empty"]
    assert kept.record(None, "app", 2000) == 0


def test_figures_of_other_windows_are_not_taken(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    before.record(1, "app", 9000)
    before.keeper.save()
    after = Kept(tmp_path / "state", window=QuotaWindow(samples=5, window_s=1))
    after.keeper.restore()
    assert "3 x 1 s" in str(after.said[0])
    assert after.record(None, "app", 0) == 0


def test_a_state_that_can_not_be_written_leaves_the_old_one_and_is_said_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "absent" / "state")
    kept.keeper.save()
    kept.keeper.save()
    assert [notice.event for notice in kept.said] == ["state can't be saved"]
    path = tmp_path / "state"
    before = Kept(path)
    before.record(1, "app", 9000)
    before.keeper.save()
    content = path.read_bytes()
    state = read_state(path)
    assert state is not None
    (tmp_path / f".state.{os.getpid()}").mkdir()
    with pytest.raises((StateError, IsADirectoryError)):
        write_state(path, state)
    assert path.read_bytes() == content
    assert json.loads(content)["v"] == 1

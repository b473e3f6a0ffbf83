"""What a daemon remembers across a restart: figures of every kind of bucket, the file, and what can't be taken."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm
from kafka_quotas.enforcement.config.client_policy import Mode, PolicyFile, Scope
from kafka_quotas.enforcement.filters.thresholds import BrokerThresholds
from kafka_quotas.enforcement.sharing.state import MeasuredState, StateSnapshotter, read_state, saved_state
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.wire.proxying.topics import KnownTopic

START_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)
APP = Entity.of(client_id="app")
KINDS = [
    (QuotaType.PRODUCE, RateAlgorithm.WINDOW),
    (QuotaType.REQUEST, RateAlgorithm.WINDOW),
    (QuotaType.PRODUCE, RateAlgorithm.SMOOTH),
    (QuotaType.CONTROLLER_MUTATION, RateAlgorithm.WINDOW),
]
steps = st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 3000)), min_size=1, max_size=25)


def manager(kind: tuple[QuotaType, RateAlgorithm]) -> ClientQuotaManager:
    quota_type, algorithm = kind
    made = ClientQuotaManager(quota_type, WINDOW, algorithm)
    made.limits.update(APP, 1000.0)
    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0].value}-{kind[1].value}")
@settings(max_examples=40, deadline=None)
@given(before=steps, after=steps)
def test_a_bucket_that_is_given_its_memory_back_goes_on_as_if_nothing_had_happened(
    kind: tuple[QuotaType, RateAlgorithm],
    before: list[tuple[int, int]],
    after: list[tuple[int, int]],
) -> None:
    first, second, now_ms = manager(kind), manager(kind), START_MS
    for delta_ms, amount in before:
        now_ms += delta_ms
        first.record_and_throttle_ms("u", "app", amount, now_ms)
    for snapshot in first.snapshots():
        second.restore(snapshot, 0)
    for delta_ms, amount in after:
        now_ms += delta_ms
        expected = first.record_and_throttle_ms("u", "app", amount, now_ms)
        assert second.record_and_throttle_ms("u", "app", amount, now_ms) == expected


def test_a_memory_of_another_kind_or_window_is_refused() -> None:
    produce = manager(KINDS[0])
    produce.record_and_throttle_ms("u", "app", 5000, START_MS)
    (snapshot,) = produce.snapshots()
    with pytest.raises(ValueError, match="RateBucket is no SmoothBucket"):
        manager(KINDS[2]).restore(snapshot, 0)
    for step in range(4):
        produce.record_and_throttle_ms("u", "app", 1, START_MS + 1000 * step)
    (longer,) = produce.snapshots()
    with pytest.raises(ValueError, match="no ring of 2 samples"):
        ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=2, window_s=1)).restore(longer, 0)


class Kept:
    """A policy, its clock and its keeper, over a file."""

    def __init__(self, path: Path, *, now_ms: int = START_MS, window: QuotaWindow = WINDOW) -> None:
        entities = {
            Entity.of(client_id="wide"): {"scope": Scope.CLUSTER},
            Entity.of(client_id="smooth"): {"mode": Mode.SMOOTH},
        }
        limits = {
            Entity.of(client_id=None): {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0},
            Entity.of(ip=None): {"connection_creation_rate": 2.0},
        }
        self.clock = VirtualClock(now_ms)
        self.said: list[LogEvent] = []
        quotas = proxy_quotas(
            limits, clock=self.clock, window=window, said=self.said, entities=entities, broker_rate=100.0
        )
        self.policy, self.connections, self.counters = quotas.registry, quotas.connections, quotas.counters
        self.thresholds = quotas.topics.thresholds
        self.thresholds.apply_file(ThresholdSettings(topics={"busy": 600.0}, totals={None: 1000.0}))
        self.bootstrap: int | None = None
        self._path = path
        self.keeper = StateSnapshotter(path, MeasuredState(quotas, lambda: self.bootstrap))

    def restore(self) -> None:
        """Restore what the file has, as a daemon does at its start."""
        self.keeper.restore(saved_state(self._path, self.said.append))

    def restarted(self, **changes: object) -> "Kept":
        """Return what the next life of this daemon has, in which some things are different."""
        self.keeper.save()
        after = Kept(self._path, **changes)  # type: ignore[arg-type]
        after.restore()
        return after

    def connect(self, node_id: int | None, times: int) -> int:
        """The delay of the last of some connections of one address."""
        rates, now_ms = self.connections.broker(node_id), self.clock.now_ms()
        delays = [
            max(rates.listener_delay_ms("main", 3.0, now_ms), rates.record_ip("192.0.2.7", 1, now_ms))
            for _ in range(times)
        ]
        return delays[-1]

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
    before.bootstrap = 1
    after = before.restarted(now_ms=START_MS + 500)
    assert after.record(None, "app", 0) == 7000 - 500
    after.policy.name_bootstrap(1)
    assert after.record(1, "app", 0) == 7000 - 500
    assert after.record(2, "app", 0) == 3000 - 500
    assert after.record(3, "wide", 0) == 2000 - 500
    assert after.record(1, "smooth", 0) == 3000 - 500
    assert after.policy.broker(1).client("u", "app").mutation.record(1, START_MS + 500) == 6500
    (notice,) = after.said
    assert (notice.event, notice.fields["buckets"], notice.fields["age_ms"]) == ("state restored", 5, 500)


def test_what_groups_used_before_a_restart_counts_after_it_as_far_as_there_are_the_same_groups(tmp_path: Path) -> None:
    team = Group(name="team", producer_byte_rate=1000, members=(GroupMember(user="u"),))
    app = Group(name="app", producer_byte_rate=1000, members=(GroupMember(user="v"),))
    before = Kept(tmp_path / "state")
    before.policy.replace(PolicyFile(groups=GroupTree([team, app])))
    assert before.record(1, "other", 9000) == 8000
    assert before.policy.broker(1).client("v", "rare").produce.record(9000, START_MS) == 8000
    after = before.restarted(now_ms=START_MS + 500)
    after.policy.replace(PolicyFile(groups=GroupTree([team])))
    assert after.record(1, "other", 0) == 8000 - 500
    assert after.policy.broker(1).client("v", "rare").produce.record(0, START_MS + 500) == 7000 - 500  # its own


def over(thresholds: BrokerThresholds, now_ms: int) -> tuple[bool, float]:
    """Whether data for `busy` is admitted, and what was taken in for it."""
    decision = thresholds.decide("busy", now_ms)
    return decision.admitted, decision.topic_rate


def test_connections_made_before_a_restart_count_after_it(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    assert before.connect(1, 4) == 0
    assert before.connect(1, 1) == 500
    assert before.connect(2, 2) == 0
    before.bootstrap = 1
    after = before.restarted()
    assert after.connect(None, 1) == 500
    assert after.connect(2, 2) == 0
    assert after.connect(2, 1) == 500
    assert after.said[0].fields["connections"] == 6


def test_what_topics_took_in_before_a_restart_counts_after_it(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    before.thresholds.broker(1).topics.record("busy", 10_000, START_MS)
    before.thresholds.broker(2).topics.record("calm", 100, START_MS)
    before.clock.advance(5_000)
    assert over(before.thresholds.broker(1), START_MS + 5_000) == (False, 2000.0)
    before.thresholds.broker(1).topics.record("busy", 7, START_MS + 5_000)
    before.bootstrap = 1
    after = before.restarted(now_ms=START_MS + 6_000)
    after.thresholds.broker(None).cache.learn([KnownTopic(0, "other", None, 1, frozenset({1}), 0, 0)])
    after.thresholds.name_bootstrap(1)
    for now_ms in (START_MS + 6_000, START_MS + 10_000, START_MS + 61_000):
        assert over(after.thresholds.broker(1), now_ms) == over(before.thresholds.broker(1), now_ms)
    assert set(after.thresholds.broker(1).rates(START_MS + 6_000)) == {"", "busy"}
    assert after.said[0].fields["topics"] == 4


def test_a_meter_that_was_ahead_of_a_clock_set_back_goes_on_ticking(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    before.thresholds.broker(None).topics.record("busy", 10_000, START_MS)
    before.clock.advance(5_000)
    after = before.restarted(now_ms=START_MS - 3_600_000)
    start_ms = after.clock.now_ms()
    assert over(after.thresholds.broker(None), start_ms) == (False, 2000.0)
    assert over(after.thresholds.broker(None), start_ms + 120_000)[0]


def test_a_listener_whose_broker_is_known_from_the_start_has_its_buckets_back(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    before.bootstrap = 1
    assert before.record(1, "app", 9000) == 7000
    before.keeper.save()
    after = Kept(tmp_path / "state")
    after.bootstrap = 1
    after.restore()
    assert after.record(1, "app", 0) == 7000


def test_figures_that_are_none_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "state"
    before = Kept(path)
    before.record(None, "app", 9000)
    before.record(None, "other", 9000)
    before.connect(None, 3)
    before.thresholds.broker(None).topics.record("busy", 10_000, START_MS)
    before.keeper.save()
    content = json.loads(path.read_text())
    kinds = {each["quota_type"]: each["snapshot"] for each in reversed(content["buckets"])}
    for quota_type, figures in (("produce", []), ("connection", [1e400]), ("topic", [1])):
        kinds[quota_type]["figures"] = figures
    path.write_text(json.dumps(content))
    after = Kept(path)
    after.restore()
    (notice,) = after.said
    assert [notice.fields[name] for name in ("buckets", "connections", "topics", "skipped")] == [1, 2, 1, 3]


@pytest.mark.parametrize(
    ("quota_type", "changes"),
    [
        ("produce", {"quota_type": "no such"}),
        ("connection", {"broker": "cluster"}),
        ("connection", {"snapshot": {"name": ["no such", "x"], "kind": "", "recorded_ms": 1, "figures": [1.0]}}),
        ("topic", {"broker": "cluster"}),
    ],
)
def test_a_row_that_no_daemon_writes_is_passed_over(
    tmp_path: Path, quota_type: str, changes: dict[str, object]
) -> None:
    path = tmp_path / "state"
    before = Kept(path)
    assert before.record(1, "app", 9000) == 7000
    before.record(1, "other", 9000)
    before.connect(1, 1)
    before.thresholds.broker(1).topics.record("busy", 10_000, START_MS)
    before.keeper.save()
    content = json.loads(path.read_text())
    row = [each for each in content["buckets"] if each["quota_type"] == quota_type][-1]
    row |= changes
    path.write_text(json.dumps(content))
    after = Kept(path)
    after.restore()
    (notice,) = after.said
    assert (notice.event, notice.fields["skipped"]) == ("state restored", 1)
    assert after.record(1, "app", 0) == 7000


def test_a_clock_that_was_set_back_makes_nobody_wait_longer(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    assert before.record(None, "app", 9000) == 7000
    after = before.restarted(now_ms=START_MS - 3_600_000)
    assert after.record(None, "app", 0) == 7000


def test_what_can_not_hold_anybody_back_any_more_is_not_saved(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "state")
    kept.record(1, "old", 9000)
    kept.clock.advance(7000)
    kept.record(1, "new", 9000)
    kept.keeper.save()
    state = read_state(tmp_path / "state")
    assert state is not None
    assert [bucket.snapshot.name for bucket in state.buckets] == [("", "new")]


def test_nobody_but_owner_and_group_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    kept = Kept(path)
    kept.keeper.save()
    modes = [stat.S_IMODE(path.stat().st_mode)]
    for before in (0o644, 0o600):
        path.chmod(before)
        kept.keeper.save()
        modes.append(stat.S_IMODE(path.stat().st_mode))
    assert not modes[0] & 0o027
    assert modes[1:] == [0o640, 0o600], "never more than 0640, and not more than an owner gave it"


def test_no_file_is_a_first_start(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "absent")
    kept.restore()
    assert kept.said == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{}",
        b"[]",
        b'{"v": 9}',
        b'{"v":3,"saved_ms":1,"settings":["3 x 1 s","3 x 1 s"],"buckets":[]}',
        b'{"v":5,"saved_ms":1,"settings":["3 x 1 s","3 x 1 s"],"buckets":[{"broker":1}]}',
        b'{"v":5,"saved_ms":1e999,"settings":[],"buckets":[]}',
        b'{"v":5,"saved_ms":1,"settings":["3 x 1 s","3 x 1 s"],"buckets":[7]}',
    ],
)
def test_a_file_that_is_no_state_is_said_and_every_bucket_starts_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    kept = Kept(tmp_path / "state")
    kept.restore()
    assert [notice.event for notice in kept.said] == ["state can't be restored; every bucket starts empty"]
    assert kept.record(None, "app", 2000) == 0


def test_figures_of_other_windows_are_not_taken(tmp_path: Path) -> None:
    before = Kept(tmp_path / "state")
    before.record(1, "app", 9000)
    after = before.restarted(window=QuotaWindow(samples=5, window_s=1))
    assert "3 x 1 s" in str(after.said[0])
    assert after.record(None, "app", 0) == 0


def test_a_start_removes_what_a_killed_daemon_left_of_a_save(tmp_path: Path) -> None:
    half = tmp_path / f".state.{os.getpid()}.0123abcd"
    half.write_text('{"v": 2')
    Kept(tmp_path / "state").restore()
    assert not half.exists()


def test_a_state_that_can_not_be_written_leaves_the_old_one_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "absent" / "state")
    kept.keeper.save()
    kept.keeper.save()
    assert [notice.event for notice in kept.said] == ["state can't be saved"]
    assert (kept.counters.state_saves, kept.counters.state_save_failures) == (0, 2)
    path = tmp_path / "state"
    before = Kept(path)
    before.record(1, "app", 9000)
    before.keeper.save()
    assert (before.counters.state_saves, before.counters.state_save_failures) == (1, 0)
    content = path.read_bytes()
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / f".state.{os.getpid()}.00000000").mkdir()
    before.keeper.save()
    assert [notice.event for notice in before.said] == ["state can't be saved"]
    assert path.read_bytes() == content
    assert json.loads(content)["v"] == 5

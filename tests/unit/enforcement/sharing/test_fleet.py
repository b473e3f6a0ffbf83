"""Members of a fleet on a virtual clock, with real buckets and reports, and a medium that can fail."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.daemon.fleet_member import LIMIT, FleetMember

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType, RateAlgorithm
from kafka_quotas.enforcement.config.settings import Fallback
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS
from kafka_quotas.enforcement.sharing.report import VERSION

APP = ("", "app")


class Member(FleetMember):
    """A member, and how many of its clients wait."""

    waiting = 0

    def record(self, amount: float, now_ms: int) -> int:
        return self.manager.record_and_throttle_ms("ANONYMOUS", "app", amount, now_ms)

    def adjust(self, now_ms: int) -> None:
        self.pool.idle_share = self.sharing.idle_share
        for buckets in self.pool.walk():
            for bucket in buckets:
                self.sharing.offer(1, bucket, now_ms)
        self.sharing.adjust(now_ms)

    def said(self) -> list[str]:
        return [event.event for event in self.events]


class Fleet:
    """Members and their medium, which delivers a report 50 ms after it was published."""

    def __init__(self, members: int, **settings: object) -> None:
        self.now_ms = 1_000_000
        self.settings = settings
        self.numbers = count(1)
        self.members = [self.new() for _ in range(members)]
        self.positions = count()
        self.is_down = False
        self.dead: set[Member] = set()
        self.generator: random.Random | None = None
        self.late: list[tuple[bytes, int]] = []

    def new(self) -> Member:
        return Member(next(self.numbers), now_ms=self.now_ms, **self.settings)  # type: ignore[arg-type]

    def run(self, seconds: float) -> Iterator[int]:
        """Yield the time every 100 ms, after buckets were adjusted and reports delivered."""
        for _ in range(int(seconds * 10)):
            self.now_ms += ADJUST_MS
            for member in self.members:
                if member not in self.dead:
                    member.adjust(self.now_ms)
            if self.now_ms % 500 == 0:
                self.exchange()
            yield self.now_ms

    def exchange(self) -> None:
        reports = [
            (member.sharing.report(self.now_ms, {1: member.waiting}), next(self.positions))
            for member in self.members
            if member not in self.dead
        ]
        if self.is_down:
            return
        if self.generator is not None:
            reports = [each for each in reports if self.generator.random() > 0.2]
            self.late.extend(each for each in reports if self.generator.random() < 0.3)
            reports += [self.late.pop(0) for _ in range(len(self.late) // 2)]
        for data, position in reports:
            for member in self.members:
                if member not in self.dead:
                    member.sharing.receive(data, position, self.now_ms + 50)

    def idle(self, seconds: float) -> None:
        for _ in self.run(seconds):
            pass


def introduced(*members: Member) -> None:
    """Have members hear the first position of a medium: a report shows by what its member has heard that it is new."""
    for member in members:
        member.sharing.receive(Member(99, fleet="another").sharing.report(0, {}), 0, 0)


def fill(fleet: Fleet, members: list[Member], seconds: float, step: float = 20_000) -> list[float]:
    """Have one client at each member send as fast as it may, and return what each of them sent."""
    sent = [0.0] * len(members)
    until_ms = [0] * len(members)
    for now_ms in fleet.run(seconds):
        for at, member in enumerate(members):
            member.waiting = int(until_ms[at] > now_ms)
            instant = now_ms
            while until_ms[at] < now_ms + ADJUST_MS and member not in fleet.dead:
                instant = max(instant, until_ms[at])
                throttle_ms = member.record(step, instant)
                sent[at] += step
                member.waiting = int(throttle_ms > 0)
                until_ms[at] = instant + throttle_ms + 10
    return sent


def joined(members: int, *, filled_s: float = 0, **settings: object) -> Fleet:
    """Return a fleet whose members have joined, and whose clients have sent as fast as they may for a time."""
    fleet = Fleet(members, **settings)
    fleet.idle(3)
    fill(fleet, fleet.members, filled_s)
    return fleet


def test_a_burst_is_allowed_once_and_not_once_per_member() -> None:
    fleet = joined(5)
    sent = fill(fleet, fleet.members, 10)
    alone = joined(1)
    (whole,) = fill(alone, alone.members, 10)
    assert 0.95 * whole < sum(sent) < 1.1 * whole


def test_a_burst_after_a_rest_is_that_of_one_broker_and_is_followed_by_the_limit() -> None:
    fleet = joined(5, filled_s=15)
    fleet.idle(30)
    sent = fill(fleet, fleet.members, 11)
    assert sum(sent) == pytest.approx(11 * LIMIT, rel=0.1)
    assert min(sent) > 0.9 * max(sent)
    assert sum(fill(fleet, fleet.members, 33)) == pytest.approx(33 * LIMIT, rel=0.05)


def test_a_report_between_two_adjustments_is_waited_for_once() -> None:
    one, other, *others = (Member(number) for number in range(1, 5))
    introduced(one, other, *others)
    for each in (one, other):
        for position, member in enumerate(others, 1):
            each.sharing.receive(member.sharing.report(0, {}), position, 0)
        each.record(LIMIT * 3, 1000)
        each.adjust(1000)
    one.sharing.receive(other.sharing.report(1000, {}), 3, 1010)
    assert one.sharing.members.count == 4
    # Four members may use 2.5 s each before they are heard: half a second too much, and nothing of the other's three.
    assert one.record(LIMIT / 100, 1020) <= 1100


@pytest.mark.parametrize(
    ("members", "seconds", "within", "evenness"), [(3, 55, 0.02, 0.95), (8, 33, 0.03, 0.98)], ids=["3", "8"]
)
def test_members_together_get_the_limit_in_the_long_run_and_each_its_part(
    members: int, seconds: int, within: float, evenness: float
) -> None:
    fleet = joined(members, filled_s=20)
    sent = fill(fleet, fleet.members, seconds)
    assert sum(sent) == pytest.approx(seconds * LIMIT, rel=within)
    assert sum(sent) ** 2 / (members * sum(each * each for each in sent)) > evenness


def test_parts_never_add_up_to_more_than_the_limit_while_waiting_clients_leave() -> None:
    fleet = joined(2, filled_s=12)
    began_ms, most = fleet.now_ms, 0.0
    for now_ms in fleet.run(12):
        fleet.members[0].waiting, fleet.members[1].waiting = 8 if now_ms < began_ms + 4000 else 1, 4
        for member in fleet.members:
            member.record(1.0, now_ms)
        if now_ms > began_ms + 3000:
            buckets: list[Any] = [member.bucket for member in fleet.members]
            most = max(most, sum(1.0 / (1.0 + each._factor) for each in buckets))
    assert most == pytest.approx(1.0)


@pytest.mark.parametrize("happens", ["a member dies", "the medium is down"])
def test_no_window_has_much_more_than_the_limit(happens: str) -> None:
    fleet = joined(3, filled_s=22)
    if happens == "a member dies":
        fleet.dead.add(fleet.members[0])
    fleet.is_down = happens == "the medium is down"
    seconds = [sum(fill(fleet, fleet.members, 1)) for _ in range(20)]
    fleet.is_down = False
    seconds += [sum(fill(fleet, fleet.members, 1)) for _ in range(20)]
    assert max(sum(seconds[at : at + 11]) for at in range(30)) < 1.1 * 11 * LIMIT


def test_one_member_alone_in_using_it_gets_the_whole_limit() -> None:
    fleet = joined(3)
    fill(fleet, fleet.members[:1], 20)
    assert sum(fill(fleet, fleet.members[:1], 55)) == pytest.approx(55 * LIMIT, rel=0.02)


def test_lost_doubled_and_reordered_reports_change_nothing_in_the_long_run() -> None:
    fleet = Fleet(3)
    fleet.generator = random.Random(4)
    fleet.idle(4)
    fill(fleet, fleet.members, 20)
    assert sum(fill(fleet, fleet.members, 33)) == pytest.approx(33 * LIMIT, rel=0.07)
    assert len({member.sharing.members.count for member in fleet.members}) == 1


def test_a_report_that_comes_twice_changes_nothing() -> None:
    one, other = (Member(number) for number in (1, 2))
    introduced(one, other)
    other.record(LIMIT * 9, 1000)
    other.adjust(1000)
    data = other.sharing.report(1000, {})
    one.record(LIMIT, 1000)
    one.adjust(1000)
    for position in range(1, 4):
        one.sharing.receive(data, position, 1100)
        one.adjust(1100)
    assert one.bucket.used(1100) == pytest.approx(LIMIT * 10, rel=0.001)


def test_a_dead_member_gives_its_share_back_within_three_heartbeats() -> None:
    fleet = joined(2)
    fleet.dead.add(fleet.members[1])
    fleet.idle(1.6)
    assert fleet.members[0].sharing.members.count == 1
    assert "fleet: a member is lost" in fleet.members[0].said()
    assert fleet.members[0].sharing.idle_share == 1.0


def test_what_a_member_used_that_was_only_silent_counts_once() -> None:
    fleet = joined(2)
    one, other = fleet.members
    fill(fleet, fleet.members, 4)
    fleet.idle(1)
    before = one.bucket.used(fleet.now_ms)
    fleet.dead.add(other)
    fleet.idle(2)
    assert "fleet: a member is lost" in one.said()
    fleet.dead.clear()
    other.record(LIMIT, fleet.now_ms)
    fleet.idle(2)
    assert one.sharing.members.count == 2
    assert one.bucket.used(fleet.now_ms) == pytest.approx(before + LIMIT, rel=0.01)


def test_a_member_that_leaves_is_gone_at_once() -> None:
    fleet = joined(2)
    last = fleet.members[1].sharing.leave(fleet.now_ms)
    fleet.members[0].sharing.receive(last, next(fleet.positions), fleet.now_ms)
    assert fleet.members[0].sharing.members.count == 1


def test_a_member_that_restarts_learns_the_window_from_the_others() -> None:
    fleet = joined(3)
    fill(fleet, fleet.members[:1], 5)
    used = fleet.members[1].bucket.used(fleet.now_ms) if fleet.members[1].pool else 0.0
    fleet.members[1].record(1.0, fleet.now_ms)
    fleet.idle(1)
    used = fleet.members[1].bucket.used(fleet.now_ms)
    assert used > LIMIT * 5
    fleet.members[0] = again = fleet.new()
    fleet.idle(3)
    assert again.sharing.is_joined
    again.record(1.0, fleet.now_ms)
    again.adjust(fleet.now_ms)
    # It knows what it used itself before it was started again.
    assert again.bucket.used(fleet.now_ms) == pytest.approx(fleet.members[1].bucket.used(fleet.now_ms), rel=0.1)


@pytest.mark.parametrize(
    ("fallback", "share"), [(Fallback.SHARE, 1 / 2), (Fallback.WHOLE, 1.0), (Fallback.CLOSED, 0.0)]
)
def test_a_member_that_is_cut_off_allows_what_the_policy_says(fallback: Fallback, share: float) -> None:
    fleet = joined(2, fallback=fallback, filled_s=20)
    fleet.is_down = True
    fill(fleet, fleet.members, 20)
    assert all(member.sharing.is_cut_off for member in fleet.members)
    assert all(member.sharing.members.count == 2 for member in fleet.members)
    sent = fill(fleet, fleet.members, 33)
    for each in sent:
        assert each == pytest.approx(33 * LIMIT * share, rel=0.1, abs=LIMIT)
    assert "fleet: cut off from the other members" in fleet.members[0].said()
    fleet.is_down = False
    fill(fleet, fleet.members, 25)
    assert not fleet.members[0].sharing.is_cut_off
    assert sum(fill(fleet, fleet.members, 33)) == pytest.approx(33 * LIMIT, rel=0.2)


def test_a_member_that_finds_no_medium_serves_after_some_seconds() -> None:
    fleet = Fleet(1)
    fleet.is_down = True
    fleet.idle(3.5)
    assert fleet.members[0].sharing.is_joined
    assert fleet.members[0].sharing.is_cut_off


def test_members_of_another_version_or_window_are_reported_and_not_trusted() -> None:
    member = Member(1)
    stranger = Member(2, window=QuotaWindow(samples=3))
    member.sharing.receive(stranger.sharing.report(0, {}), 0, 0)
    data = bytearray(Member(3).sharing.report(0, {}))
    data[2] = VERSION + 1
    for position in (1, 2):
        member.sharing.receive(bytes(data), position, 0)
    member.sharing.receive(b"rubbish", 3, 0)
    assert member.sharing.members.count == 1
    assert member.said() == ["fleet: a member is not trusted"] * 2 + ["fleet: a report does not count"]
    assert set(member.sharing.members.strangers) == {2, 3}


def test_other_fleets_on_the_same_medium_are_left_alone() -> None:
    member = Member(1)
    member.sharing.receive(Member(2, fleet="staging").sharing.report(0, {}), 0, 0)
    assert member.sharing.members.count == 1
    assert not member.events


def test_a_wrong_clock_is_reported_and_changes_nothing() -> None:
    member, other = Member(1), Member(2)
    introduced(member, other)
    member.sharing.receive(other.sharing.report(3_600_000, {}), 1, 1000)
    assert member.sharing.members.count == 2
    assert member.events[-1].fields["ahead_ms"] == 3_599_000


def test_buckets_far_from_their_limits_cost_nothing() -> None:
    fleet = joined(3)
    for member in fleet.members:
        member.record(LIMIT / 10, fleet.now_ms)
    fleet.idle(1)
    assert all(member.sharing.shared_buckets == 0 for member in fleet.members)
    member = fleet.members[0]
    assert len(member.sharing.report(fleet.now_ms, {})) < 100


@pytest.mark.parametrize(
    ("quota_type", "algorithm"),
    [(QuotaType.PRODUCE, RateAlgorithm.SMOOTH), (QuotaType.CONTROLLER_MUTATION, RateAlgorithm.WINDOW)],
)
def test_tokens_are_shared_as_well(quota_type: QuotaType, algorithm: RateAlgorithm) -> None:
    fleet = joined(3, quota_type=quota_type, algorithm=algorithm, filled_s=20)
    before = fleet.members[0].bucket.total
    fill(fleet, fleet.members, 33)
    # By the bucket, for a mutation that has to wait is refused.
    assert fleet.members[0].bucket.total - before == pytest.approx(33 * LIMIT, rel=0.03)


def test_a_changed_limit_holds_from_the_next_adjustment_on() -> None:
    fleet = joined(3, filled_s=20)
    for member in fleet.members:
        member.manager.limits.update(Entity.of(client_id="app"), LIMIT / 2)
    fill(fleet, fleet.members, 25)
    assert sum(fill(fleet, fleet.members, 33)) == pytest.approx(33 * LIMIT / 2, rel=0.15)


def test_a_report_is_written_as_documented() -> None:
    sharing = Member(1).sharing
    assert sharing.report(0, {})[:11] == b"kq" + bytes((VERSION,)) + (1).to_bytes(8)


def throttle_times(fleet: Fleet, homes: list[Member], seconds: float) -> list[int]:
    """Return the throttle times of one client at each home, whose requests take a quarter of a second each."""
    fleet.idle(3)
    told, until_ms = list[int](), [0] * len(homes)
    for now_ms in fleet.run(seconds):
        for at, home in enumerate(homes):
            while until_ms[at] < now_ms + ADJUST_MS:
                instant = max(now_ms, until_ms[at])
                told.append(home.record(LIMIT / 4, instant))
                until_ms[at] = instant + told[-1] + 10
        for home in homes:
            home.waiting = sum(until > now_ms for each, until in zip(homes, until_ms, strict=True) if each is home)
    return told


def test_clients_of_a_fleet_are_told_the_throttle_times_of_one_broker() -> None:
    fleet, alone = Fleet(3), Fleet(1)
    told, control = throttle_times(fleet, fleet.members, 90), throttle_times(alone, alone.members * 3, 90)
    half = len(control) // 2
    assert len(told) == pytest.approx(len(control), rel=0.05)
    assert sum(told[half:]) / len(told[half:]) == pytest.approx(sum(control[half:]) / len(control[half:]), rel=0.06)
    assert max(told) < 1.3 * max(control)


def test_a_client_that_stalls_after_its_throttle_time_leaves_its_part_to_the_others() -> None:
    fleet = joined(2, filled_s=20)
    stalled, other = fleet.members
    stalled.waiting = 0
    fill(fleet, [other], 12)
    (sent,) = fill(fleet, [other], 33)
    assert sent == pytest.approx(33 * LIMIT, rel=0.05)

"""Reports cross the medium whole, and what anybody may write to a fleet's topic moves no limit."""

import tracemalloc
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.daemon.fleet_member import LIMIT, FleetMember

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS, INTERVAL_MS
from kafka_quotas.enforcement.sharing.report import (
    FRESH_MS,
    MAX_BUCKETS,
    MAX_MEMBERS,
    MAX_REPORT_BYTES,
    MAX_STRANGERS,
    VERSION,
    Entry,
    OtherVersionError,
    Refusal,
    Report,
    name_hash,
    read_report,
    write_report,
)

ENTRY = Entry(bucket=2**64 - 1, total=1e13 + 0.5, rate=1024.0, recent=4096.0, age_ms=5500, waiting=24)


def report(**fields: object) -> Report:
    values: dict[str, object] = {
        "member": 7,
        "name": "host-1:9092",
        "fleet": name_hash("production"),
        "settings": name_hash("11 x 1 s", size=4),
        "sequence": 3,
        "heard": -1,
        "sent_ms": 1_763_745_300_123,
    }
    return Report(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "written",
    [
        report(),
        report(entries=(ENTRY, ENTRY)),
        report(leaves=True, heard=12),
        report(
            has_levels=True,
            entries=(Entry(bucket=1, total=0, rate=0, recent=0, age_ms=0, waiting=0, level=8.0, level_age_ms=9),),
        ),
    ],
)
def test_a_report_is_read_as_it_was_written(written: Report) -> None:
    assert read_report(write_report(written)) == written


def test_a_report_of_another_version_names_its_member() -> None:
    data = bytearray(write_report(report(member=99)))
    data[2] = VERSION + 1
    with pytest.raises(OtherVersionError) as error:
        read_report(bytes(data) + b"what only that version knows")
    assert (error.value.member, error.value.version) == (99, VERSION + 1)


def test_figures_beyond_any_usage_are_refused() -> None:
    for wrong in (float("nan"), float("inf"), -float("inf")):
        entry = Entry(bucket=1, total=wrong, rate=0, recent=0, age_ms=0, waiting=0)
        with pytest.raises(ProtocolError, match="figures that can't be"):
            read_report(write_report(report(entries=(entry,))))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_rubbish_is_refused_in_one_way(data: bytes, kept: int) -> None:
    whole = write_report(report(entries=(ENTRY,)))
    for each in (data, whole[:kept] if kept < len(whole) else b"", whole + data[:1] + b"x"):
        with pytest.raises(ProtocolError):
            read_report(each)


def test_an_entry_takes_28_bytes() -> None:
    assert len(write_report(report(entries=(ENTRY,)))) - len(write_report(report())) == 28


SECRET, OTHER = b"0123456789abcdef", b"fedcba9876543210"
BUCKET = 1


class Member(FleetMember):
    """A member whose clock may be wrong."""

    ahead_ms = 0
    """How far its clock is ahead of the others'."""

    @property
    def names(self) -> list[str]:
        return [member.report.name for member in self.sharing.members.alive.values()]

    @property
    def refused(self) -> dict[Refusal, int]:
        return {refusal: total for refusal, total in self.sharing.checks.refused.items() if total}


class Medium:
    """A topic that brings everything to everybody in 50 ms, and on which anybody may write."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.log: list[bytes] = []
        self.positions = count()
        self.now_ms = 0

    def write(self, data: bytes) -> None:
        self.log.append(data)
        position = next(self.positions)
        for member in self.members:
            member.sharing.receive(data, position, self.now_ms + member.ahead_ms + 50)

    def run(self, seconds: float, step: float = 0.0) -> None:
        """Have all members report, and the clients of each take `step` bytes per 100 ms."""
        for _ in range(round(seconds * 1000 / ADJUST_MS)):
            self.now_ms += ADJUST_MS
            for member in self.members:
                now_ms = self.now_ms + member.ahead_ms
                if step:
                    member.bucket.record(step, now_ms)
                    member.sharing.offer(BUCKET, member.bucket, now_ms)
                member.sharing.adjust(now_ms)
            if self.now_ms % INTERVAL_MS == 0:
                for data in [member.sharing.report(self.now_ms + member.ahead_ms, {}) for member in self.members]:
                    self.write(data)

    def last(self, number: int) -> Report:
        """Return the latest report of a member, as anybody can read it."""
        return next(each for each in map(read_report, reversed(self.log)) if each.member == number)

    def forge(self, number: int, **fields: object) -> bytes:
        """Return the next report of a member as somebody without a secret writes it."""
        last = self.last(number)
        values = {"signed": False, "sequence": last.sequence + 1, "heard": len(self.log) - 1, **fields}
        return write_report(replace(last, **values))  # type: ignore[arg-type]


def entry(**fields: object) -> Entry:
    values = {"bucket": BUCKET, "total": 0.0, "rate": 0.0, "recent": 0.0, "age_ms": 0, "waiting": 0}
    return Entry(**(values | fields))  # type: ignore[arg-type]


def fleet(*secrets: bytes) -> Medium:
    medium = Medium(Member(1, *secrets), Member(2, *secrets))
    medium.run(15, step=LIMIT / 20)
    assert [member.names for member in medium.members] == [["member-2"], ["member-1"]]
    return medium


FORGERIES = {
    "a phantom member": {"member": 99, "name": "phantom", "sequence": 1, "entries": ()},
    "waiting clients of a phantom": {"member": 99, "name": "phantom", "entries": (entry(waiting=65_535),)},
    "a falling total": {"entries": (entry(total=0.0),)},
    "a negative total": {"entries": (entry(total=-1e15),)},
    "a total without end": {"entries": (entry(total=float("inf")),)},
    "a rate that is no number": {"entries": (entry(total=1e12, rate=float("nan")),)},
    "a negative rate": {"entries": (entry(total=1e12, rate=-1e9),)},
    "an end that is none": {"leaves": True, "entries": ()},
    "the last sequence": {"sequence": 2**64 - 1, "entries": ()},
    "our own number": {"member": 1, "sequence": 2**63, "heard": 2**62, "entries": ()},
    "rubbish": None,
}


def attacked(forgery: str, *secrets: bytes) -> tuple[Medium, Medium]:
    """Return a fleet after twenty forgeries, which loses no member of it, and another one after the same time."""
    medium, twin = fleet(*secrets), fleet(*secrets)
    fields = FORGERIES[forgery]
    for _ in range(20):
        medium.write(b"rubbish" if fields is None else medium.forge(2, **fields))
        for each in (medium, twin):
            each.run(0.5, step=LIMIT / 20)
        assert [member.names for member in medium.members] == [["member-2"], ["member-1"]]
    return medium, twin


@pytest.mark.parametrize("forgery", FORGERIES)
def test_without_the_secret_no_report_moves_anything(forgery: str) -> None:
    medium, twin = attacked(forgery, SECRET)
    ours, theirs = medium.members[0], twin.members[0]
    assert ours.bucket.used(medium.now_ms) == pytest.approx(theirs.bucket.used(twin.now_ms), rel=0.001)
    waits = [each.manager.record_and_throttle_ms("ANONYMOUS", "app", LIMIT, medium.now_ms) for each in (ours, theirs)]
    assert waits[0] == waits[1] > 0
    assert sum(ours.refused.values()) == 20


@pytest.mark.parametrize("forgery", [name for name in FORGERIES if "phantom" not in name and "end" not in name])
def test_without_any_secret_what_can_not_be_is_refused(forgery: str) -> None:
    medium, twin = attacked(forgery)
    ours, theirs = medium.members[0], twin.members[0]
    # Who can write in a member's name can keep others from hearing it, but nothing is given back.
    least = LIMIT / 20 * 10 * 11 if forgery == "a falling total" else 0.95 * theirs.bucket.used(twin.now_ms)
    assert ours.bucket.used(medium.now_ms) >= least
    assert sum(ours.refused.values()) >= 20


def test_an_end_that_was_forged_is_made_up_for_by_the_next_report() -> None:
    medium = fleet()
    medium.write(medium.forge(2, leaves=True, entries=()))
    assert medium.members[0].names == []
    medium.run(1.5)
    assert medium.members[0].names == ["member-2"]


def test_nobody_else_confirms_our_reports() -> None:
    medium = fleet(SECRET)
    (one, _), before = medium.members, medium.members[0].sharing._confirmed_ms
    medium.members.clear()
    for each in range(20):
        own = one.sharing.report(medium.now_ms + each * INTERVAL_MS, {})
        forged = write_report(read_report(own), [SECRET], b"another\0fleet")
        one.sharing.receive(forged, len(medium.log) + each, medium.now_ms + each * INTERVAL_MS)
        one.sharing.adjust(medium.now_ms + each * INTERVAL_MS)
    assert one.sharing._confirmed_ms == before
    assert one.sharing.is_cut_off


class TestReplays:
    def test_a_dead_member_does_not_come_back_with_its_old_reports(self) -> None:
        medium = fleet(SECRET)
        old = [data for data in medium.log if read_report(data).member == 2]
        one = medium.members[0]
        del medium.members[1]
        medium.run(3)
        assert one.names == []
        for data in old[-5:]:
            medium.write(data)
        assert one.names == []
        medium.run(60)
        for data in old:
            medium.write(data)
        assert one.names == []
        assert one.refused == {Refusal.OLD: 5 + len(old) - 1}  # the first of all had heard nobody

    def test_old_reports_do_not_keep_a_member_alive(self) -> None:
        medium = fleet(SECRET)
        old = medium.log[-2:]
        del medium.members[1]
        for _ in range(5):
            medium.run(0.5)
            for data in old:
                medium.write(data)
        assert medium.members[0].names == []

    def test_a_member_that_has_just_started_is_not_told_of_those_that_ended_long_ago(self) -> None:
        medium = fleet(SECRET)
        old = list(medium.log)
        medium.members[:] = [new := Member(3, SECRET)]
        medium.run(1)
        for data in old:
            medium.write(data)
        medium.run(1)
        assert new.names == []

    def test_a_report_of_another_topic_with_the_same_secret_is_not_ours(self) -> None:
        medium, elsewhere = fleet(SECRET), Member(7, SECRET, topic="staging")
        medium.members.append(elsewhere)
        medium.run(2)
        assert medium.members[0].names == ["member-2"]
        assert medium.members[0].sharing.members.strangers[7].reason == (
            "its reports are signed with a secret that is not ours"
        )


class TestSecrets:
    def test_members_with_and_without_one_are_named(self) -> None:
        medium = Medium(Member(1, SECRET), Member(2), Member(3, OTHER))
        medium.run(3)
        signed, unsigned, other = medium.members
        assert {each.name: each.reason for each in signed.sharing.members.strangers.values()} == {
            "member-2": "its reports are not signed",
            "member-3": "its reports are signed with a secret that is not ours",
        }
        # Without a secret nothing can be checked: all count, and those that sign are known.
        assert sorted(unsigned.names) == ["member-1", "member-3"]
        assert all(member.report.signed for member in unsigned.sharing.members.alive.values())
        assert other.names == []

    def test_a_change_of_secrets_loses_nobody(self) -> None:
        medium = Medium(Member(1, SECRET), Member(2, SECRET))
        medium.run(3)
        steps = [(SECRET, OTHER), (OTHER, SECRET), (OTHER,)]
        for secrets in steps:
            for member in medium.members:
                member.secrets = secrets
                medium.run(2)
                assert [each.names for each in medium.members] == [["member-2"], ["member-1"]]
        assert all(not member.refused for member in medium.members)

    def test_a_member_that_is_not_trusted_is_forgotten_after_its_end(self) -> None:
        medium = Medium(Member(1, SECRET), Member(2))
        medium.run(3)
        assert medium.members[0].sharing.members.strangers
        del medium.members[1]
        medium.run(62)
        assert not medium.members[0].sharing.members.strangers


class TestBounds:
    def test_reports_of_thirty_thousand_buckets_take_no_memory(self) -> None:
        medium = fleet()
        one = medium.members[0]
        long = medium.forge(2, entries=tuple(entry(bucket=each) for each in range(30_000)))
        assert len(long) > MAX_REPORT_BYTES
        tracemalloc.start()
        for _ in range(20):
            medium.write(long)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 1_000_000
        assert one.refused == {Refusal.TOO_LONG: 20}

    def test_buckets_that_others_make_up_are_bounded_and_dropped(self) -> None:
        medium = fleet()
        one = medium.members[0]
        medium.members[:] = [one]
        tracemalloc.start()
        for number in range(0, 2 * MAX_BUCKETS, 2000):
            made_up = tuple(entry(bucket=10 + number + each, rate=1.0) for each in range(2000))
            medium.write(medium.forge(2, entries=made_up))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert one.sharing.shared_buckets == MAX_BUCKETS
        assert one.refused[Refusal.BUCKETS] == MAX_BUCKETS + 1
        assert kept < 50_000_000
        medium.now_ms += 22_000
        medium.run(2)
        assert one.sharing.shared_buckets <= 1

    def test_members_that_others_make_up_are_bounded(self) -> None:
        medium = fleet()
        one = medium.members[0]
        made_up = read_report(medium.forge(2, entries=()))
        for number in range(100, 100 + 2 * MAX_MEMBERS):
            medium.write(write_report(replace(made_up, member=number)))
        assert one.sharing.members.count == MAX_MEMBERS
        assert one.refused == {Refusal.MEMBERS: MAX_MEMBERS + 2}

    def test_strangers_and_their_lines_in_the_log_are_bounded(self) -> None:
        medium = fleet(SECRET)
        one = medium.members[0]
        lines = len(one.events)
        made_up = read_report(medium.forge(2, entries=()))
        for number in range(100, 5100):
            medium.write(write_report(replace(made_up, member=number)))
        assert len(one.sharing.members.strangers) == MAX_STRANGERS
        assert len(one.events) - lines == MAX_STRANGERS
        assert one.refused == {Refusal.UNSIGNED: 5000}


def test_a_topic_that_was_made_anew_is_followed_from_its_beginning() -> None:
    medium = fleet(SECRET)
    medium.run(60)
    medium.positions = count()
    for member in medium.members:
        member.sharing.begin_again()
    medium.run(3)
    assert [member.names for member in medium.members] == [["member-2"], ["member-1"]]
    assert medium.members[0].sharing._position < 100


class TestClocks:
    @pytest.mark.parametrize("ahead_ms", [-86_400_000, -11_000, 3_600_000])
    def test_a_clock_that_is_wrong_moves_nothing_and_is_named(self, ahead_ms: int) -> None:
        medium, twin = Medium(Member(1, SECRET), Member(2, SECRET)), fleet(SECRET)
        medium.now_ms = 100_000_000
        medium.members[1].ahead_ms = ahead_ms
        medium.run(15, step=LIMIT / 20)
        assert [member.names for member in medium.members] == [["member-2"], ["member-1"]]
        for ours, theirs in zip(medium.members, twin.members, strict=True):
            used = ours.bucket.used(medium.now_ms + ours.ahead_ms)
            assert used == pytest.approx(theirs.bucket.used(twin.now_ms), rel=0.02)
            assert not ours.refused
            assert [each.has_wrong_clock for each in ours.sharing.members.alive.values()] == [True]

    @pytest.mark.parametrize("step_ms", [5_000, 30_000])
    def test_a_clock_that_jumps_loses_no_member_for_long(self, step_ms: int) -> None:
        """The daemon's own clock is never set and never goes back: this is a process that was stopped for a while."""
        medium = fleet(SECRET)
        medium.members[1].ahead_ms = step_ms
        medium.run(35, step=LIMIT / 20)
        assert [member.names for member in medium.members] == [["member-2"], ["member-1"]]
        assert not any(member.sharing.is_cut_off for member in medium.members)
        used = [member.bucket.used(medium.now_ms + member.ahead_ms) for member in medium.members]
        assert used == [pytest.approx(11 * LIMIT, rel=0.1)] * 2


def test_a_sequence_goes_on_by_what_a_member_can_have_published_since() -> None:
    medium = fleet(SECRET)
    one, other = medium.members
    for _ in range(FRESH_MS // INTERVAL_MS):
        other.sharing.report(medium.now_ms, {})  # lost
    medium.run(1)
    assert one.names == ["member-2"]
    assert not one.refused


def test_a_bucket_that_is_shared_again_continues_its_total() -> None:
    medium = fleet(SECRET)
    totals = [each.entries[0].total for each in map(read_report, medium.log) if each.member == 2 and each.entries]
    medium.run(60)
    assert medium.members[1].sharing.shared_buckets == 0
    medium.run(15, step=LIMIT / 20)
    again = [each.entries[0].total for each in map(read_report, medium.log) if each.member == 2 and each.entries]
    assert again == sorted(again)
    assert again[len(totals)] > totals[-1]
    assert not medium.members[0].refused

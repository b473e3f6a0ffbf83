"""One member's part in a fleet: reports in, reports out, and the buckets adjusted in between. No I/O, no clock.

How to use it, with any medium that brings every report to all members (its author included) in one order:

- `offer(number, bucket, now_ms)` for every bucket that clients use here, some times per second (`bucket_number` names
  it); between two calls everything is done to the bucket by `adjust`, never by a request.
- `adjust(now_ms)` every `ADJUST_MS`: records what others use and reserves what is theirs.
- `report(now_ms, waiting)` every `interval_ms`: returns the bytes to publish.
- `receive(data, position, now_ms)` for every report that comes, one's own too; the position grows along the order.
- `leave(now_ms)` at the end: returns the last report to publish.

A bucket reports `total`, `used` and `capacity`, and receives `record`, `record_past` and `reserve` (`SharedBucket`).
A bucket that was not offered yet reserves `1 - idle_share` of its capacity (`BucketPool.idle_share`).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.quota_key import UNLIMITED
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.settings import Fallback, FleetSettings
from kafka_quotas.enforcement.sharing.bucket_share import BucketShare, Outlook
from kafka_quotas.enforcement.sharing.buckets import BucketRecorder, SharedBucket
from kafka_quotas.enforcement.sharing.report import (
    MAX_BUCKETS,
    MAX_NAME,
    MAX_REPORT_BYTES,
    Entry,
    Members,
    OtherVersionError,
    Refusal,
    Report,
    ReportChecks,
    name_hash,
    read_head,
    read_report,
    write_report,
)
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

ADJUST_MS: Final = 100
"""Interval at which buckets are adjusted to what the others use."""
INTERVAL_MS: Final = 500
NEAR: Final = 0.5
"""Part of its share of the capacity from which on a bucket is reported."""
TOLERANCE: Final = 0.01
"""Part of a member's share of the capacity by which the others may be wrong before it is reported."""
REFRESH_MS: Final = 2_000
"""Longest time between two entries about a bucket in use, so that a lost one is made up for."""
CUT_OFF_AFTER: Final = 6
"""Intervals without a report of one's own that came back, after which a member is cut off."""
JOINING: Final = 4
"""Intervals after its first report came back for which a new member listens before it has joined."""
BYTES_PER_SECOND: Final = 100_000
"""Most that all members together may publish: each report has room for a member's share of it."""
MIN_ENTRIES: Final = 8
_ENTRY_BYTES: Final = 28
_HEAD_BYTES: Final = 130


class Sharing:
    """The sharing of all buckets of one process with the other members of its fleet."""

    def __init__(
        self,
        member: int,
        fleet: FleetSettings,
        now_ms: int,
        *,
        name: str,
        windows: tuple[QuotaWindow, QuotaWindow],
        notify: Notify,
        interval_ms: int = INTERVAL_MS,
        secrets: Callable[[], Sequence[bytes]] = tuple,
        recorder: BucketRecorder | None = None,
    ) -> None:
        """Make a member that has heard nobody.

        Args:
            member: Its number, 64 bits, drawn at random for this life of it.
            fleet: The settings of its fleet.
            now_ms: The time.
            name: Its name, for people.
            windows: The windows of rates and of mutations, which have to be the same at all members.
            notify: Takes what an operator should read.
            interval_ms: The time between two of its reports.
            secrets: Returns the secrets in force: the first signs, each is as good to verify.
            recorder: Records and reserves what is the others', by default in this process alone.
        """
        self.name = name
        self.interval_ms = interval_ms
        self._fallback = fleet.fallback
        self.number = member
        self.members = Members(interval_ms)
        self.is_joined = False
        """Whether it has listened for long enough to know the members and what they use."""
        self.is_cut_off = False
        """Whether its own reports no longer come back."""
        self.published_bytes = 0
        self.received_bytes = 0
        self.checks = ReportChecks(f"{fleet.target.topic}\0{fleet.name}".encode(), interval_ms, secrets)
        self._notify = notify
        self._recorder = recorder or BucketRecorder()
        self._window = windows[0]
        self._span_ms = self._window.samples * self._window.window_ms
        self._fleet = name_hash(fleet.name)
        self._windows = name_hash(", ".join(map(str, windows)), size=4)
        self._shares: dict[int, BucketShare] = {}
        self._dropped: dict[int, tuple[float, int]] = {}
        self._sequence = 0
        self._unconfirmed: deque[tuple[int, int, bytes]] = deque()  # sequence, time and hash of the bytes
        self._positions: deque[tuple[int, int]] = deque()
        self._heard_sequence = 0
        self._position = -1
        self._confirmed_ms = self._echoed_ms = now_ms
        self._first_echo_ms: int | None = None
        self._levels_until_ms = 0

    @property
    def idle_share(self) -> float:
        """The part of a bucket that may be used here while nobody has heard of it."""
        if self.is_cut_off and self._fallback is not Fallback.SHARE:
            return 1.0 if self._fallback is Fallback.WHOLE else 0.0
        return 1.0 / self.members.count

    @property
    def shared_buckets(self) -> int:
        """The number of buckets about which the members talk at present."""
        return len(self._shares)

    # Buckets.

    def offer(self, number: int, bucket: SharedBucket, now_ms: int) -> None:
        """Share a bucket from now on, if it comes near its limit here or others use it."""
        share = self._shares.get(number)
        if share is not None and share.bucket is bucket:
            return
        capacity = bucket.capacity
        if capacity >= UNLIMITED:
            return
        if share is None and bucket.used(now_ms) >= NEAR * capacity * self.idle_share:
            share = self._share(number)
        if share is not None:
            share.attach(bucket, now_ms)
            share.adjust(self._outlook(now_ms))
        else:
            self._recorder.reserve_for_others(bucket, capacity * (1.0 - self.idle_share), is_shared=False)

    def _share(self, number: int) -> BucketShare:
        total, _ = self._dropped.pop(number, (0.0, 0))
        share = BucketShare(number, self._window, self._recorder, total=total)
        self._shares[number] = share
        return share

    def adjust(self, now_ms: int) -> None:
        """Record in each shared bucket what the others use, and reserve what is theirs."""
        self._follow_medium(now_ms)
        outlook = self._outlook(now_ms)
        for share in self._shares.values():
            share.adjust(outlook)

    # Reports.

    def report(self, now_ms: int, waiting: Mapping[int, int]) -> bytes:
        """Return the report to publish now, with the number of throttled clients by bucket."""
        self._sequence += 1
        with_levels = now_ms < self._levels_until_ms
        entries = self._entries(now_ms, waiting, with_levels=with_levels)
        data = self._written(now_ms, entries, with_levels=with_levels)
        self._unconfirmed.append((self._sequence, now_ms, sha256(data).digest()))
        while len(self._unconfirmed) > 1000:
            self._unconfirmed.popleft()
        return data

    def leave(self, now_ms: int) -> bytes:
        """Return the last report, which says that this member ends."""
        self._sequence += 1
        return self._written(now_ms, (), leaves=True)

    def _written(
        self, now_ms: int, entries: tuple[Entry, ...], *, with_levels: bool = False, leaves: bool = False
    ) -> bytes:
        report = Report(
            member=self.number,
            name=self.name[:MAX_NAME],
            fleet=self._fleet,
            settings=self._windows,
            sequence=self._sequence,
            heard=self._position,
            sent_ms=now_ms,
            leaves=leaves,
            has_levels=with_levels,
            entries=entries,
        )
        data = write_report(report, self.checks.secrets(), self.checks.scope)
        self.published_bytes += len(data)
        return data

    def _entries(self, now_ms: int, waiting: Mapping[int, int], *, with_levels: bool) -> tuple[Entry, ...]:
        """Return the entries of those buckets about which the others are most wrong, as many as fit."""
        members = self.members.count
        due: list[tuple[float, BucketShare]] = []
        for number, share in list(self._shares.items()):
            share.note(waiting.get(number, 0), now_ms)
            surprise, sent_ms = share.surprise(now_ms) * members, share.last_sent_ms
            if with_levels or surprise > TOLERANCE or (sent_ms is None and surprise):
                due.append((surprise, share))
            elif sent_ms is not None and now_ms - sent_ms >= REFRESH_MS and not share.is_quiet:
                due.append((surprise + TOLERANCE, share))
            elif share.is_quiet and now_ms - share.touched_ms > 2 * self._span_ms:
                self._drop(number, share, now_ms)
        due.sort(key=lambda each: each[0], reverse=True)
        room = BYTES_PER_SECOND * self.interval_ms / 1000 / members - _HEAD_BYTES
        entries = []
        for _, share in due[: max(MIN_ENTRIES, int(room / _ENTRY_BYTES))]:
            entry = share.entry(now_ms, with_level=with_levels)
            if entry is not None:
                share.sent(entry, self._sequence, now_ms)
                entries.append(entry)
        return tuple(entries)

    def _drop(self, number: int, share: BucketShare, now_ms: int) -> None:
        del self._shares[number]
        # The others drop it as well, but not at the same moment.
        while self._dropped and now_ms - next(iter(self._dropped.values()))[1] > 4 * self._span_ms:
            del self._dropped[next(iter(self._dropped))]
        if share.total:
            self._dropped[number] = (share.total, now_ms)
        if share.bucket is not None:
            amount = share.bucket.capacity * (1.0 - self.idle_share)
            self._recorder.reserve_for_others(share.bucket, amount, is_shared=False)

    def receive(self, data: bytes, position: int, now_ms: int) -> None:
        """Take up a report of any bytes, at its place in the order in which all members read reports."""
        self.received_bytes += len(data)
        self._position = max(self._position, position)
        self.checks.heard(position, now_ms)
        if len(data) > MAX_REPORT_BYTES:
            self._refuse(Refusal.TOO_LONG, now_ms)
            return
        try:
            head, _, _ = read_head(data)
            if head.fleet != self._fleet:
                return
            refusal = self._refusal(head, data, position, now_ms)
            if refusal is Refusal.OLD and (head.heard < 0 or not self.is_joined):
                return  # one of them has just started, and can't know or show how new it is
            if refusal is not None:
                self._refuse(refusal, now_ms, head)
            elif head.member == self.number:
                self._confirm(head.sequence, data, position, now_ms)
            else:
                self._hear(read_report(data), now_ms)
        except OtherVersionError as error:
            self._distrust(error.member, "", error.message, Refusal.VERSION, now_ms)
        except ProtocolError:
            self._refuse(Refusal.UNREADABLE, now_ms)

    def begin_again(self) -> None:
        """Take note that the medium's positions begin again: the topic was deleted and made anew."""
        self._position = -1
        self._positions.clear()
        self.checks.begin_again()

    def _refusal(self, head: Report, data: bytes, position: int, now_ms: int) -> Refusal | None:
        refusal = self.checks.unauthentic(head, data)
        if refusal is not None or head.member == self.number:
            return refusal
        if head.settings != self._windows:
            return Refusal.WINDOWS
        member = self.members.alive.get(head.member)
        return self.checks.implausible(head, position, member, self.members.count, now_ms)

    def _refuse(self, refusal: Refusal, now_ms: int, head: Report | None = None) -> None:
        """Count what is not used, name the member that can't be trusted, and log anything else now and then."""
        if head is not None and refusal in (Refusal.UNSIGNED, Refusal.SIGNATURE, Refusal.WINDOWS):
            self._distrust(head.member, head.name, refusal.meaning, refusal, now_ms)
        elif self.checks.refuse(refusal, now_ms):
            fields = {} if head is None else {"member": head.name}
            self._warn("fleet: a report does not count", reason=refusal.meaning, **fields)

    def _confirm(self, sequence: int, data: bytes, position: int, now_ms: int) -> None:
        """Take note that an own report came back, which nobody else can have written."""
        if sequence < (self._unconfirmed[0][0] if self._unconfirmed else self._sequence + 1):
            return  # it comes again
        if (sequence, sha256(data).digest()) not in ((each[0], each[2]) for each in self._unconfirmed):
            self._refuse(Refusal.OWN_NUMBER, now_ms)
            return
        while self._unconfirmed and self._unconfirmed[0][0] <= sequence:
            self._confirmed_ms = self._unconfirmed.popleft()[1]
            self._echoed_ms = now_ms
        if not self._positions or sequence > self._positions[-1][0]:
            self._positions.append((sequence, position))
        if self._first_echo_ms is None:
            self._first_echo_ms = now_ms

    def _hear(self, report: Report, now_ms: int) -> None:
        if report.leaves:
            if self.members.alive.pop(report.member, None) is not None:
                self._lost(report, "a member left", now_ms)
            return
        before = self.members.alive.get(report.member)
        if self.members.hear(report, now_ms):
            self._levels_until_ms = now_ms + 2 * self.interval_ms
            self._changed("a member is heard", report.name)
        member = self.members.alive[report.member]
        if member.has_wrong_clock and (before is None or not before.has_wrong_clock):
            event = "fleet: a member's clock is wrong, or ours; no time of it is used"
            self._warn(event, member=report.name, ahead_ms=member.ahead_ms)
        with_level = report.has_levels and not self.is_joined
        for entry in report.entries:
            share = self._shares.get(entry.bucket)
            if share is None:
                if len(self._shares) >= MAX_BUCKETS:
                    self._refuse(Refusal.BUCKETS, now_ms, report)
                    continue
                share = self._share(entry.bucket)
            if not share.hear(report.member, entry, report.sequence, now_ms, with_level=with_level):
                self._refuse(Refusal.FALLING_TOTAL, now_ms, report)

    # The state of the fleet.

    def _outlook(self, now_ms: int) -> Outlook:
        return Outlook(
            now_ms=now_ms,
            members=self.members.count,
            heard_sequence=self._heard_sequence,
            cut_off=self._fallback if self.is_cut_off else None,
        )

    def _follow_medium(self, now_ms: int) -> None:
        """Find out whether the medium works, who is lost, and what all others have heard."""
        interval_ms = self.interval_ms
        cut_off = now_ms - self._echoed_ms > CUT_OFF_AFTER * interval_ms
        if cut_off != self.is_cut_off:
            self.is_cut_off = cut_off
            if cut_off:
                self._warn("fleet: cut off from the other members", allows=self._fallback.value)
            else:
                self._notify(LogEvent.of("fleet: the other members are heard again"))
        if not cut_off:
            for member in self.members.lose(self._confirmed_ms):
                self._lost(member.report, "a member is lost", now_ms)
        self.members.forget_strangers(now_ms)
        if not self.is_joined:
            first_ms = self._first_echo_ms
            self.is_joined = cut_off or (first_ms is not None and now_ms - first_ms >= JOINING * interval_ms)
        heard = self.members.heard
        while self._positions and (heard is None or self._positions[0][1] <= heard):
            self._heard_sequence = self._positions.popleft()[0]

    def _lost(self, last: Report, what: str, now_ms: int) -> None:
        self.checks.ended(last, now_ms)
        for share in self._shares.values():
            share.lose(last.member)
        self._changed(what, last.name)

    def _changed(self, what: str, name: str) -> None:
        self._notify(LogEvent.of(f"fleet: {what}", member=name, members=self.members.count))

    def _distrust(self, number: int, name: str, reason: str, refusal: Refusal, now_ms: int) -> None:
        self.checks.refuse(refusal, now_ms)
        if self.members.distrust(number, name, reason, now_ms):
            self._warn("fleet: a member is not trusted", member=self.members.strangers[number].name, reason=reason)

    def _warn(self, event: str, **fields: str | float) -> None:
        self._notify(LogEvent.of(event, LogLevel.WARNING, **fields))

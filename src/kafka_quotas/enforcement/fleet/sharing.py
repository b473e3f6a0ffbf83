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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.enforcement.config.fleet_settings import Fallback
from kafka_quotas.enforcement.fleet.bucket_share import BucketShare, Outlook
from kafka_quotas.enforcement.fleet.members import Member, Members
from kafka_quotas.enforcement.fleet.report import (
    MAX_NAME,
    Entry,
    OtherVersionError,
    Report,
    name_hash,
    read_report,
    write_report,
)
from kafka_quotas.enforcement.fleet.usage import SharedBucket
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

ADJUST_MS: Final = 100
"""Interval at which buckets are adjusted to what the others use."""
INTERVAL_MS: Final = 500
"""Interval of reports."""
NEAR: Final = 0.5
"""Part of its share of the capacity from which on a bucket is reported."""
TOLERANCE: Final = 0.01
"""Part of a member's share of the capacity by which the others may be wrong before it is reported."""
REFRESH_MS: Final = 2_000
"""Longest time between two entries about a bucket in use, so that a lost one is made up for."""
CUT_OFF_AFTER: Final = 6
"""Intervals without a report of one's own that came back, after which a member is cut off."""
JOINING: Final = 3
"""Intervals after its first report came back for which a new member listens before it has joined."""
BYTES_PER_SECOND: Final = 100_000
"""Most that all members together may publish: each report has room for a member's share of it."""
MIN_ENTRIES: Final = 8
_ENTRY_BYTES: Final = 28
_HEAD_BYTES: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSettings:
    """The settings of a member."""

    fleet: str
    """Name of the fleet."""
    name: str
    """Name of the member, for people."""
    windows: str
    """The windows of the quotas, which have to be the same at all members."""
    span_ms: int
    """Time for which a charge counts: all samples of the window."""
    sample_ms: int
    """Length of one sample of the window."""
    interval_ms: int = INTERVAL_MS
    fallback: Fallback = Fallback.SHARE


class Sharing:
    """The sharing of all buckets of one process with the other members of its fleet."""

    def __init__(self, member: int, settings: SharingSettings, now_ms: int, *, notify: Notify) -> None:
        """Make a member that has heard nobody.

        Args:
            member: Its number, 64 bits, drawn at random for this life of it.
            settings: Its settings.
            now_ms: The time.
            notify: Takes what an operator should read.
        """
        self.settings = settings
        self.number = member
        self.members = Members(settings.interval_ms)
        self.is_joined = False
        """Whether it has listened for long enough to know the members and what they use."""
        self.is_cut_off = False
        """Whether its own reports no longer come back."""
        self.published_bytes = 0
        self.received_bytes = 0
        self.bad_reports = 0
        self._notify = notify
        self._fleet = name_hash(settings.fleet)
        self._windows = name_hash(settings.windows, size=4)
        self._shares: dict[int, BucketShare] = {}
        self._sequence = 0
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._positions: deque[tuple[int, int]] = deque()
        self._heard_sequence = 0
        self._position = -1
        self._started_ms = self._confirmed_ms = self._echoed_ms = now_ms
        self._first_echo_ms: int | None = None
        self._levels_until_ms = 0

    @property
    def idle_share(self) -> float:
        """The part of a bucket that may be used here while nobody has heard of it."""
        if self.is_cut_off and self.settings.fallback is not Fallback.SHARE:
            return 1.0 if self.settings.fallback is Fallback.WHOLE else 0.0
        return 1.0 / self.members.count

    @property
    def shared_buckets(self) -> int:
        """The number of buckets about which the members talk at present."""
        return len(self._shares)

    def shares(self, now_ms: int) -> Iterator[tuple[SharedBucket, float]]:
        """Yield each shared bucket that is used here, with the part of its limit that is used here."""
        outlook = self._outlook(now_ms)
        for share in self._shares.values():
            if share.bucket is not None:
                yield share.bucket, share.share(outlook)

    # Buckets.

    def knows(self, number: int, bucket: SharedBucket) -> bool:
        """Return whether a bucket is shared already."""
        share = self._shares.get(number)
        return share is not None and share.bucket is bucket

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
            bucket.reserve(capacity * (1.0 - self.idle_share))

    def _share(self, number: int) -> BucketShare:
        share = self._shares[number] = BucketShare(number, self.settings.span_ms, self.settings.sample_ms)
        return share

    def adjust(self, now_ms: int) -> None:
        """Record in each shared bucket what the others use, and reserve what is theirs."""
        self._follow_medium(now_ms)
        outlook = self._outlook(now_ms)
        for share in self._shares.values():
            share.adjust(outlook)

    # Reports.

    def report(self, now_ms: int, waiting: Mapping[SharedBucket, int]) -> bytes:
        """Return the report of this moment, to be published.

        Args:
            now_ms: The time.
            waiting: How many clients are throttled for each bucket, none for those without.
        """
        self._sequence += 1
        with_levels = now_ms < self._levels_until_ms
        entries = self._entries(now_ms, waiting, with_levels=with_levels)
        self._unconfirmed.append((self._sequence, now_ms))
        while len(self._unconfirmed) > 1000:
            self._unconfirmed.popleft()
        return self._written(now_ms, entries, with_levels=with_levels)

    def leave(self, now_ms: int) -> bytes:
        """Return the last report, which says that this member ends."""
        self._sequence += 1
        return self._written(now_ms, (), leaves=True)

    def _written(
        self, now_ms: int, entries: tuple[Entry, ...], *, with_levels: bool = False, leaves: bool = False
    ) -> bytes:
        report = Report(
            member=self.number,
            name=self.settings.name[:MAX_NAME],
            fleet=self._fleet,
            settings=self._windows,
            sequence=self._sequence,
            heard=self._position,
            sent_ms=now_ms,
            leaves=leaves,
            has_levels=with_levels,
            entries=entries,
        )
        data = write_report(report)
        self.published_bytes += len(data)
        return data

    def _entries(self, now_ms: int, waiting: Mapping[SharedBucket, int], *, with_levels: bool) -> tuple[Entry, ...]:
        """Return the entries of those buckets about which the others are most wrong, as many as fit."""
        members = self.members.count
        due: list[tuple[float, BucketShare]] = []
        for number, share in list(self._shares.items()):
            share.note(0 if share.bucket is None else waiting.get(share.bucket, 0), now_ms)
            surprise, sent_ms = share.surprise(now_ms) * members, share.last_sent_ms
            if with_levels or surprise > TOLERANCE or (sent_ms is None and surprise):
                due.append((surprise, share))
            elif sent_ms is not None and now_ms - sent_ms >= REFRESH_MS and not share.is_quiet:
                due.append((surprise + TOLERANCE, share))
            elif share.is_quiet and now_ms - share.touched_ms > 2 * self.settings.span_ms:
                self._drop(number, share)
        due.sort(key=lambda each: each[0], reverse=True)
        room = BYTES_PER_SECOND * self.settings.interval_ms / 1000 / members - _HEAD_BYTES
        entries = []
        for _, share in due[: max(MIN_ENTRIES, int(room / _ENTRY_BYTES))]:
            entry = share.entry(now_ms, with_level=with_levels)
            if entry is not None:
                share.sent(entry, self._sequence, now_ms)
                entries.append(entry)
        return tuple(entries)

    def _drop(self, number: int, share: BucketShare) -> None:
        del self._shares[number]
        if share.bucket is not None:
            share.bucket.reserve(share.bucket.capacity * (1.0 - self.idle_share))

    def receive(self, data: bytes, position: int, now_ms: int) -> None:
        """Take up a report.

        Args:
            data: Its bytes, whatever they are.
            position: Its place in the order in which all members read reports.
            now_ms: The time.
        """
        self.received_bytes += len(data)
        self._position = max(self._position, position)
        try:
            report = read_report(data)
        except OtherVersionError as error:
            self._distrust(error.member, "", error.message)
            return
        except ProtocolError as error:
            self.bad_reports += 1
            self._warn("fleet: a report can't be read", error=error.message)
            return
        if report.fleet != self._fleet:
            return
        if report.member == self.number:
            self._confirm(report.sequence, position, now_ms)
        elif report.settings != self._windows:
            self._distrust(report.member, report.name, "its quota windows are not ours")
        else:
            self._hear(report, now_ms)

    def _confirm(self, sequence: int, position: int, now_ms: int) -> None:
        """Take note that an own report came back."""
        while self._unconfirmed and self._unconfirmed[0][0] <= sequence:
            self._confirmed_ms = self._unconfirmed.popleft()[1]
            self._echoed_ms = now_ms
        if not self._positions or sequence > self._positions[-1][0]:
            self._positions.append((sequence, position))
        if self._first_echo_ms is None:
            self._first_echo_ms = now_ms

    def _hear(self, report: Report, now_ms: int) -> None:
        if report.leaves:
            member = self.members.alive.pop(report.member, None)
            if member is not None:
                self._lost(member, "a member left")
            return
        if self.members.hear(report, now_ms):
            self._levels_until_ms = now_ms + 2 * self.settings.interval_ms
            self._changed("a member is heard", report.name)
            if self.members.alive[report.member].has_wrong_clock:
                self._warn(
                    "fleet: a member's clock is wrong, or ours; no time of it is used",
                    member=report.name,
                    ahead_ms=report.sent_ms - now_ms,
                )
        for entry in report.entries:
            share = self._shares.get(entry.bucket)
            if share is None:
                share = self._share(entry.bucket)
            share.hear(
                report.member,
                entry,
                report.sequence,
                now_ms,
                with_level=report.has_levels and not self.is_joined,
            )

    # The state of the fleet.

    def _outlook(self, now_ms: int) -> Outlook:
        return Outlook(
            now_ms=now_ms,
            members=self.members.count,
            heard_sequence=self._heard_sequence,
            cut_off=self.settings.fallback if self.is_cut_off else None,
        )

    def _follow_medium(self, now_ms: int) -> None:
        """Find out whether the medium works, who is lost, and what all others have heard."""
        interval_ms = self.settings.interval_ms
        cut_off = now_ms - self._echoed_ms > CUT_OFF_AFTER * interval_ms
        if cut_off != self.is_cut_off:
            self.is_cut_off = cut_off
            if cut_off:
                self._warn("fleet: cut off from the other members", allows=self.settings.fallback.value)
            else:
                self._notify(LogEvent(event="fleet: the other members are heard again"))
        if not cut_off:
            for member in self.members.lose(self._confirmed_ms):
                self._lost(member, "a member is lost")
        if not self.is_joined:
            first_ms = self._first_echo_ms
            self.is_joined = cut_off or (first_ms is not None and now_ms - first_ms >= JOINING * interval_ms)
        heard = self.members.heard
        while self._positions and (heard is None or self._positions[0][1] <= heard):
            self._heard_sequence = self._positions.popleft()[0]

    def _lost(self, member: Member, what: str) -> None:
        for share in self._shares.values():
            share.lose(member.number)
        self._changed(what, member.name)

    def _changed(self, what: str, name: str) -> None:
        fields: dict[str, str | float] = {"member": name, "members": self.members.count}
        self._notify(LogEvent(event=f"fleet: {what}", fields=fields))

    def _distrust(self, number: int, name: str, reason: str) -> None:
        if self.members.distrust(number, reason):
            self._warn("fleet: a member is not trusted", member=name or f"{number:016x}", reason=reason)

    def _warn(self, event: str, **fields: str | float) -> None:
        self._notify(LogEvent(event=event, level=LogLevel.WARNING, fields=fields))

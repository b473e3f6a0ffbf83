"""A member's report, as it crosses the medium: big-endian, of one version; see `docs/reference/fleet-reports.md`.

Every version begins with the magic, the version and the member, so that a member of another version can be named.
Amounts are totals since the member's start, never increments: a report that is lost, doubled or late changes nothing
that the next one does not set right.

A member is lost when the medium has brought back our own report that was written `LOST_AFTER` intervals after the
member was heard last: a silent medium loses nobody.

Anybody who may write to the topic can write anything, so what counts is:

- With secrets: reports that a secret has signed for this topic and fleet.
- In any case: those that were written lately. A report names the position up to which its member had heard all others,
  so one that comes again later than `FRESH_MS` shows its age, whatever any clock says.
- Each once, in order: a sequence grows, by no more than its member can have published since.
- As many members and buckets as fit into the memory.
"""

import hmac
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from kafka_quotas.core.errors import ProtocolError

MAGIC: Final = b"kq"
VERSION: Final = 2
MAX_REPORT_BYTES: Final = 64 * 1024
"""Longest report that is read: a fleet of one member publishes at most 60 kB at a time, larger ones less."""
MAC_BYTES: Final = 32
"""Bytes of the HMAC-SHA256 at the end of a signed report."""
MAX_NAME: Final = 40
_HEAD: Final = struct.Struct(">2sBQ")
_BODY: Final = struct.Struct(">QIQQqBH")
_ENTRY: Final = struct.Struct(">QdffHH")
_ENTRY_WITH_LEVEL: Final = struct.Struct(">QdffHHfH")
MAX_SHORT: Final = 0xFFFF
"""The ages and numbers of clients in an entry are this at most."""
MAX_FIGURE: Final = 1e18
"""Figures of a bucket are below this."""
_LEAVES: Final = 1
_HAS_LEVELS: Final = 2
_SIGNED: Final = 4


class Entry(NamedTuple):
    """What a member reports of one bucket, in the order of its bytes."""

    bucket: int
    """Number of the bucket: a hash of its name, the same at every member."""
    total: float
    """Amount charged by this member's clients since its start."""
    rate: float
    """Amount per second that they are charged at present: others reckon with it until the next entry."""
    recent: float
    """Part of `total` that is in the window."""
    age_ms: int
    """How long ago that part was charged on average."""
    waiting: int
    """Clients of this member that are throttled for it."""
    level: float = 0.0
    """What all members together have in the window, as far as this one knows; only in reports to newcomers."""
    level_age_ms: int = 0
    """How long ago that was charged on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a member publishes every interval: that it lives, what it has heard, and its usage near limits."""

    member: int
    """Number of this life of the member, chosen at random at its start."""
    name: str
    """Name for people."""
    fleet: int
    """Hash of the fleet's name."""
    settings: int
    """Hash of the settings that all members must share: the windows."""
    sequence: int
    """Number of the report, which grows by one from each to the next."""
    heard: int
    """Position up to which the member had heard all reports when it wrote this one, -1 for none."""
    sent_ms: int
    """Time of the member's clock, to find wrong clocks and nothing else."""
    leaves: bool = False
    has_levels: bool = False
    """Whether the entries have their `level`."""
    signed: bool = False
    entries: tuple[Entry, ...] = ()


class OtherVersionError(ProtocolError):
    """A report in another version of the format."""

    def __init__(self, member: int, version: int) -> None:
        super().__init__(f"a report of version {version}, where {VERSION} is spoken here")
        self.member = member
        self.version = version


def name_hash(text: str, *, size: int = 8) -> int:
    """Return a hash of a name, of `size` bytes, that is the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest())


def signature(secret: bytes, scope: bytes, data: bytes) -> bytes:
    """Return the signature of the bytes of a report to one topic and fleet."""
    return hmac.digest(secret, len(scope).to_bytes(4, "big") + scope + data, "sha256")


def write_report(report: Report, secrets: Sequence[bytes] = (), scope: bytes = b"") -> bytes:
    """Return the bytes of a report, signed by the first secret if there is one."""
    data = _written(replace(report, signed=bool(secrets)))
    return data + signature(secrets[0], scope, data) if secrets else data


def _written(report: Report) -> bytes:
    name = report.name.encode()[:MAX_NAME]
    flags = _LEAVES * report.leaves | _HAS_LEVELS * report.has_levels | _SIGNED * report.signed
    figures = (report.fleet, report.settings, report.sequence, report.heard + 1, report.sent_ms, flags)
    layout, fields = (_ENTRY_WITH_LEVEL, 8) if report.has_levels else (_ENTRY, 6)
    return b"".join(
        (
            _HEAD.pack(MAGIC, VERSION, report.member),
            _BODY.pack(*figures, len(report.entries)),
            bytes((len(name),)),
            name,
            *(layout.pack(*entry[:fields]) for entry in report.entries),
        )
    )


def read_head(data: bytes) -> tuple[Report, int, int]:
    """Return a report without its entries, their number, and the offset of the first."""
    try:
        magic, version, member = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise ProtocolError("not a report of a fleet's member")
        if version != VERSION:
            raise OtherVersionError(member, version)
        fleet, settings, sequence, heard, sent_ms, flags, count = _BODY.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _BODY.size
        end = at + 1 + data[at]
    except (struct.error, IndexError) as error:
        raise ProtocolError("a report of a fleet's member that ends too early") from error
    name = data[at + 1 : end][:MAX_NAME].decode(errors="replace")
    report = Report(
        member=member,
        # It is shown on terminals, and anybody may have written it.
        name="".join(each if each.isprintable() else "?" for each in name),
        fleet=fleet,
        settings=settings,
        sequence=sequence,
        heard=heard - 1,
        sent_ms=sent_ms,
        leaves=bool(flags & _LEAVES),
        has_levels=bool(flags & _HAS_LEVELS),
        signed=bool(flags & _SIGNED),
    )
    return report, count, end


def read_report(data: bytes) -> Report:
    """Return the report in these bytes, with any signature."""
    report, count, at = read_head(data)
    layout = _ENTRY_WITH_LEVEL if report.has_levels else _ENTRY
    end = at + count * layout.size
    if end > len(data):
        raise ProtocolError("a report of a fleet's member that ends too early")
    entries = tuple(Entry(*each) for each in layout.iter_unpack(data[at:end]))
    figures = [figure for entry in entries for figure in (entry.total, entry.rate, entry.recent, entry.level)]
    # Neither negative nor without end: NaN is in no range.
    if end + MAC_BYTES * report.signed != len(data) or not all(0 <= figure < MAX_FIGURE for figure in figures):
        raise ProtocolError("a report of a fleet's member with figures that can't be")
    return replace(report, entries=entries)


LOST_AFTER: Final = 2.5
"""Intervals of silence after which a member is lost, which a round trip makes three at most."""
WRONG_CLOCK_MS: Final = 10_000
MAX_STRANGERS: Final = 100
"""Most members that are remembered as not trusted: anybody may make up more."""
STRANGER_MS: Final = 60_000
"""Time for which one that is not heard any more is remembered."""


@dataclass(frozen=True, slots=True)
class Member:
    """Another member, as this one hears it."""

    report: Report
    """Its latest report, without the entries."""
    heard_ms: int

    @property
    def ahead_ms(self) -> int:
        """How far its clock is ahead of ours, less the time that its report took."""
        return self.report.sent_ms - self.heard_ms

    @property
    def has_wrong_clock(self) -> bool:
        """Whether its clock and ours differ by more than a report can take."""
        return abs(self.ahead_ms) > WRONG_CLOCK_MS


@dataclass(slots=True)
class Stranger:
    """A member that is not trusted."""

    name: str
    reason: str
    heard_ms: int


class Members:
    """The other members by number."""

    def __init__(self, interval_ms: int) -> None:
        self._lost_ms = LOST_AFTER * interval_ms
        self.alive: dict[int, Member] = {}
        self.strangers: dict[int, Stranger] = {}

    @property
    def count(self) -> int:
        """The number of members, this one included."""
        return len(self.alive) + 1

    @property
    def heard(self) -> int | None:
        """The position up to which every other member has heard all reports, None without others."""
        return min((member.report.heard for member in self.alive.values()), default=None)

    def hear(self, report: Report, now_ms: int) -> bool:
        """Take note of a report that counts, and return whether its member is new."""
        is_new = report.member not in self.alive
        self.strangers.pop(report.member, None)
        self.alive[report.member] = Member(replace(report, entries=()), now_ms)
        return is_new

    def lose(self, confirmed_ms: int) -> Iterable[Member]:
        """Remove and return the members that were silent for too long at the last confirmed report."""
        lost = [each for each in self.alive.values() if confirmed_ms - each.heard_ms >= self._lost_ms]
        for member in lost:
            del self.alive[member.report.member]
        return lost

    def distrust(self, number: int, name: str, reason: str, now_ms: int) -> bool:
        """Remember why a member is not trusted, and return whether that is new."""
        known = self.strangers.get(number)
        if known is not None:
            known.heard_ms = now_ms
            is_new, known.reason = known.reason != reason, reason
            return is_new
        if len(self.strangers) >= MAX_STRANGERS:
            return False
        self.strangers[number] = Stranger(name or f"{number:016x}", reason, now_ms)
        return True

    def forget_strangers(self, now_ms: int) -> None:
        """Forget those that are not trusted and have ended."""
        for number in [number for number, each in self.strangers.items() if now_ms - each.heard_ms > STRANGER_MS]:
            del self.strangers[number]


FRESH_MS: Final = 10_000
"""Time for which a report counts after the latest one that its member had heard."""
MAX_SEQUENCE: Final = 2**40
"""Number that no member reaches: 17,000 years of reports."""
MAX_MEMBERS: Final = 1_000
MAX_BUCKETS: Final = 10_000
"""Most buckets that others may make a member keep, at some 3 kB each: they can't keep more up to date."""
LOG_EVERY_MS: Final = 60_000
"""Time between two lines in the log about the same kind of refusal."""
_SAMPLE_MS: Final = 500


class Refusal(StrEnum):
    """Why a report, or an entry of one, does not count."""

    meaning: str
    """The reason for the log and the status."""

    def __new__(cls, value: str, meaning: str) -> Self:  # noqa: D102 - of each member
        made = str.__new__(cls, value)
        made._value_, made.meaning = value, meaning
        return made

    TOO_LONG = "too_long", "a report is longer than any that a member publishes"
    TOO_MANY = "too_many", "more reports come than can be read"
    UNREADABLE = "unreadable", "a report can't be read"
    VERSION = "version", "it is of another version"
    WINDOWS = "windows", "its quota windows are not ours"
    UNSIGNED = "unsigned", "its reports are not signed"
    SIGNATURE = "signature", "its reports are signed with a secret that is not ours"
    OWN_NUMBER = "own_number", "a report has our number and is not ours"
    OLD = "old", "a report was written long ago, or comes again"
    SEQUENCE = "sequence", "a report's number is beyond what its member can have published"
    FALLING_TOTAL = "falling_total", "a bucket's total is less than it was"
    MEMBERS = "members", "there are more members than can be kept"
    BUCKETS = "buckets", "there are more buckets than can be kept"


class ReportChecks:
    """The reports that one member lets count, and how many of which kind it did not."""

    def __init__(self, scope: bytes, interval_ms: int, secrets: Callable[[], Sequence[bytes]]) -> None:
        """Make the checks of reports that the first of the secrets signs for a topic and fleet, the `scope`."""
        self.scope = scope
        self.secrets = secrets
        self.refused: Counter[Refusal] = Counter()
        self._interval_ms = interval_ms
        self._heard: deque[tuple[int, int]] = deque()
        self._ended: dict[int, tuple[int, int]] = {}
        self._logged_ms: dict[Refusal, int] = {}

    def refuse(self, refusal: Refusal, now_ms: int) -> bool:
        """Count a refusal, and return whether it is time to log its kind again."""
        self.refused[refusal] += 1
        last_ms = self._logged_ms.get(refusal)
        if last_ms is not None and now_ms - last_ms < LOG_EVERY_MS:
            return False
        self._logged_ms[refusal] = now_ms
        return True

    def heard(self, position: int, now_ms: int) -> None:
        """Take note of a position that came, whatever is at it."""
        if not self._heard or now_ms - self._heard[-1][0] >= _SAMPLE_MS:
            self._heard.append((now_ms, position))
        while len(self._heard) > 1 and self._heard[1][0] <= now_ms - FRESH_MS:
            self._heard.popleft()

    def begin_again(self) -> None:
        """Forget all positions: the topic is a new one."""
        self._heard.clear()

    def ended(self, last: Report, now_ms: int) -> None:
        """Remember the last report of a member that was lost or left, as long as it could come again."""
        self._ended[last.member] = (last.sequence, now_ms)
        for number in [each for each, (_, at_ms) in self._ended.items() if now_ms - at_ms > 2 * FRESH_MS]:
            del self._ended[number]

    def unauthentic(self, head: Report, data: bytes) -> Refusal | None:
        """Return why nobody vouches for a report, None where somebody does or nobody has to."""
        secrets = self.secrets()
        if not secrets:
            return None
        if not head.signed:
            return Refusal.UNSIGNED
        content, signed = data[:-MAC_BYTES], data[-MAC_BYTES:]
        made = (signature(secret, self.scope, content) for secret in secrets)
        return None if any(hmac.compare_digest(each, signed) for each in made) else Refusal.SIGNATURE

    def implausible(
        self, head: Report, position: int, member: Member | None, members: int, now_ms: int
    ) -> Refusal | None:
        """Return why a report at a position does not count, None if it does. A new one has no `member`."""
        if not self._heard or not self._heard[0][1] <= head.heard < position:
            return Refusal.OLD
        if member is None:
            last, _ = self._ended.get(head.member, (-1, 0))
            if head.sequence <= last:
                return Refusal.OLD
            if head.sequence > MAX_SEQUENCE:
                return Refusal.SEQUENCE
            return Refusal.MEMBERS if members >= MAX_MEMBERS and not head.leaves else None
        if head.sequence <= member.report.sequence:
            return Refusal.OLD
        most = (now_ms - member.heard_ms + FRESH_MS) // self._interval_ms + 1
        return Refusal.SEQUENCE if head.sequence - member.report.sequence > most else None

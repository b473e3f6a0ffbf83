"""A member's report, as it crosses the medium: big-endian, of one version, and documented in `docs/how-to/fleet.md`.

Every version begins with the magic, the version and the member, so that a member of another version can be named.
Amounts are totals since the member's start, never increments: a report that is lost, doubled or late changes nothing
that the next one does not set right.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from kafka_quotas.core.errors import ProtocolError

MAGIC: Final = b"kq"
VERSION: Final = 1
MAX_NAME: Final = 40
"""Most bytes of a member's name."""
_HEAD: Final = struct.Struct(">2sBQ")
_BODY: Final = struct.Struct(">QIQQqBH")
_ENTRY: Final = struct.Struct(">QdffHH")
_MAX_SHORT: Final = 0xFFFF
_LEVEL: Final = struct.Struct(">fH")
_LEAVES: Final = 1
_HAS_LEVELS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a member reports of one bucket."""

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
    """Whether the member ends."""
    has_levels: bool = False
    """Whether the entries have their `level`."""
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


def write_report(report: Report) -> bytes:
    """Return the bytes of a report."""
    name = report.name.encode()[:MAX_NAME]
    flags = _LEAVES * report.leaves | _HAS_LEVELS * report.has_levels
    pieces = [
        _HEAD.pack(MAGIC, VERSION, report.member),
        _BODY.pack(
            report.fleet,
            report.settings,
            report.sequence,
            report.heard + 1,
            report.sent_ms,
            flags,
            len(report.entries),
        ),
        bytes((len(name),)),
        name,
    ]
    for entry in report.entries:
        pieces.append(
            _ENTRY.pack(
                entry.bucket, entry.total, entry.rate, entry.recent, _short(entry.age_ms), _short(entry.waiting)
            )
        )
        if report.has_levels:
            pieces.append(_LEVEL.pack(entry.level, _short(entry.level_age_ms)))
    return b"".join(pieces)


def _short(figure: int) -> int:
    return min(figure, _MAX_SHORT)


def read_report(data: bytes) -> Report:
    """Return the report in these bytes.

    Raises:
        OtherVersionError: It is a report of another version.
        ProtocolError: It is no report.
    """
    try:
        magic, version, member = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise ProtocolError("not a report of a fleet's member")
        if version != VERSION:
            raise OtherVersionError(member, version)
        fleet, settings, sequence, heard, sent_ms, flags, count = _BODY.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _BODY.size
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode(errors="replace")
        has_levels = bool(flags & _HAS_LEVELS)
        entries = []
        for _ in range(count):
            bucket, total, rate, recent, age_ms, waiting = _ENTRY.unpack_from(data, end)
            end += _ENTRY.size
            level, level_age_ms = 0.0, 0
            if has_levels:
                level, level_age_ms = _LEVEL.unpack_from(data, end)
                end += _LEVEL.size
            entries.append(
                Entry(
                    bucket=bucket,
                    total=total,
                    rate=rate,
                    recent=recent,
                    age_ms=age_ms,
                    waiting=waiting,
                    level=level,
                    level_age_ms=level_age_ms,
                )
            )
    except (struct.error, IndexError) as error:
        raise ProtocolError("a report of a fleet's member that ends too early") from error
    figures = [figure for entry in entries for figure in (entry.total, entry.rate, entry.recent, entry.level)]
    if end != len(data) or not all(-1e18 < figure < 1e18 for figure in figures):
        raise ProtocolError("a report of a fleet's member with figures that can't be")
    return Report(
        member=member,
        name=name,
        fleet=fleet,
        settings=settings,
        sequence=sequence,
        heard=heard - 1,
        sent_ms=sent_ms,
        leaves=bool(flags & _LEAVES),
        has_levels=has_levels,
        entries=tuple(entries),
    )

"""A member's report, as it crosses the medium: big-endian, of one version; see `docs/reference/fleet-reports.md`.

Every version begins with the magic, the version and the member, so that a member of another version can be named.
Amounts are totals since the member's start, never increments: a report that is lost, doubled or late changes nothing
that the next one does not set right.
"""

import hmac
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError

MAGIC: Final = b"kq"
VERSION: Final = 2
MAX_REPORT_BYTES: Final = 64 * 1024
"""Longest report that is read: a fleet of one member publishes at most 60 kB at a time, larger ones less."""
MAC_BYTES: Final = 32
"""Bytes of the HMAC-SHA256 at the end of a signed report."""
MAX_NAME: Final = 40
"""Most bytes of a member's name."""
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
    """Whether the member ends."""
    has_levels: bool = False
    """Whether the entries have their `level`."""
    signed: bool = False
    """Whether it ends with a signature."""
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


def is_signed_by(secrets: Iterable[bytes], scope: bytes, data: bytes) -> bool:
    """Return whether one of the secrets made the signature at the end of a report."""
    content, signed = data[:-MAC_BYTES], data[-MAC_BYTES:]
    return any(hmac.compare_digest(signature(secret, scope, content), signed) for secret in secrets)


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
    """Return a report without its entries, their number, and the offset of the first.

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
    """Return the report in these bytes, with any signature.

    Raises:
        OtherVersionError: It is a report of another version.
        ProtocolError: It is no report.
    """
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

"""Addresses as Java's `InetAddress.getByName` reads them without a name lookup.

Java accepts more addresses than most: `127.1` and `1` are IPv4 addresses of fewer parts, leading zeros are decimal,
and an IPv6 address may be in square brackets or carry a numeric zone.

**Source:** `java.net.InetAddress.getAllByName` and `sun.net.util.IPAddressUtil` (JDK 17).
"""

import re
from collections.abc import Callable

_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}")
_IPV4_LENGTH = 15
_GROUP = re.compile(r"[0-9a-fA-F]+")
_NUMERIC_ZONE = re.compile(r"[0-9]+")
_GROUPS = 8


def is_address_or_host(name: str, resolves: Callable[[str], bool]) -> bool:
    """Return whether Java finds an address for a name: a literal, or else a host that `resolves` knows.

    An empty name is an address to Java, that of this machine.
    """
    if not name:
        return True
    host, bracketed = name, False
    if name.startswith("["):
        if len(name) <= 2 or not name.endswith("]"):
            return False
        host, bracketed = name[1:-1], True
    if host[0] not in "0123456789abcdefABCDEF:":
        return not bracketed and resolves(host)
    if ipv4_literal(host) is not None:
        return not bracketed
    address, _, zone = host.partition("%")
    if ipv6_literal(address) is not None:
        return "%" not in host or _NUMERIC_ZONE.fullmatch(zone) is not None
    return ":" not in host and resolves(host)


def ipv4_literal(text: str) -> bytes | None:
    """Return the bytes of an IPv4 address of one to four decimal parts, the last filling up, or None."""
    if len(text) > _IPV4_LENGTH or not _IPV4.fullmatch(text):
        return None
    *leading, last = map(int, text.split("."))
    free = 4 - len(leading)
    if any(part > 0xFF for part in leading) or last >= 1 << (8 * free):
        return None
    return bytes(leading) + last.to_bytes(free, "big")


def ipv6_literal(text: str) -> bytes | None:
    """Return the sixteen bytes of an IPv6 address (no brackets, no zone), or None."""
    head, gap, tail = text.partition("::")
    if "::" in tail or tail.startswith(":"):
        return None
    left = _groups(head, last=not gap)
    right = _groups(tail, last=True) if gap else b""
    if left is None or right is None:
        return None
    missing = 2 * _GROUPS - len(left) - len(right)
    if missing < 0 or (missing > 0) != bool(gap):
        return None
    return left + bytes(missing) + right


def _groups(text: str, *, last: bool) -> bytes | None:
    """Return the bytes of groups between colons, the last of which may be an IPv4 address."""
    data = b""
    groups = text.split(":") if text else []
    for index, group in enumerate(groups):
        if last and index == len(groups) - 1 and "." in group:
            address = ipv4_literal(group) if group.count(".") == 3 else None
            if address is None:
                return None
            data += address
        elif _GROUP.fullmatch(group) and int(group, 16) <= 0xFFFF:
            data += int(group, 16).to_bytes(2, "big")
        else:
            return None
    return data

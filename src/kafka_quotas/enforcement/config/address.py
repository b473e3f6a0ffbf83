"""The addresses of servers, as HOST:PORT, and those that brokers are given by node id."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

MAX_PORT: Final = 65_535
MAX_ADDRESSES: Final = 1_000
"""Most node ids that may be given addresses: each has a listening socket from the start."""
_BROKER_ADDRESS: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?=(.+)")
_BROKER_EXAMPLE: Final = "for example 1=20001,2=kafka-2.example:20002 or, for many at once, 1001-1099=21001"
MAX_NODE_ID: Final = 2**31 - 1
_HOST_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/@\[\],]+)):(?P<port>\d{1,5})")


class ListenError(KafkaQuotasError):
    """Error for a listening socket that can't be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host, by name or number (IPv6 without brackets), and a port from 0 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, may_be_zero: bool = False) -> Address:
    """Return the address that HOST:PORT means, with IPv6 in brackets.

    `may_be_zero` allows port 0, any free port.

    Raises:
        UsageError: The text is no such address.
    """
    match = _HOST_PORT.fullmatch(text.strip())
    port = int(match["port"]) if match else -1
    if match is None or not (0 if may_be_zero else 1) <= port <= MAX_PORT:
        raise UsageError(f"not a host:port: {text!r}", hint="for example 127.0.0.1:9092 or [::1]:9092")
    return Address(host=match["bracketed"] or match["host"], port=port)


def parse_local_address(text: str) -> Address:
    """Return the address that [HOST:]PORT means, on 127.0.0.1 without a host.

    Port 0 is any free port.

    Raises:
        UsageError: The text is no such address.
    """
    return parse_address(f"127.0.0.1:{text.strip()}" if text.strip().isdigit() else text, may_be_zero=True)


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses in texts of HOST:PORT[,HOST:PORT...], in their order and each once.

    Raises:
        UsageError: A part is no address, or there is none at all.
    """
    found = tuple(dict.fromkeys(parse_address(part) for text in texts for part in text.split(",")))
    if not found:
        raise UsageError("no host:port is given", hint="for example broker-1:9092,broker-2:9092")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """The advertised address of one broker, or of a range of brokers with consecutive ports."""

    first: int
    """First node id."""
    last: int
    """Last node id."""
    port: int
    """Port of `first`, from which the ports of the further node ids count up."""
    host: str | None = None
    """Host of these brokers, None for that of all brokers."""


def address_of(addresses: Iterable[BrokerAddress], node_id: int) -> BrokerAddress | None:
    """Return the configured address of a node id, None without one."""
    return next((each for each in addresses if each.first <= node_id <= each.last), None)


def parse_broker_addresses(texts: Iterable[str]) -> tuple[BrokerAddress, ...]:
    """Return the addresses that ID=[HOST:]PORT or FIRST-LAST=[HOST:]PORT mean, separated by commas.

    Raises:
        UsageError: A text is no such address, a node id has two, or there are more than `MAX_ADDRESSES` node ids.
    """
    found = [_broker_address(part.strip()) for text in texts for part in text.split(",") if part.strip()]
    for one, other in combinations(found, 2):
        if one.first <= other.last and other.first <= one.last:
            raise UsageError(f"broker {max(one.first, other.first)} is given two addresses")
    if sum(1 + each.last - each.first for each in found) > MAX_ADDRESSES:
        raise UsageError(f"more than {MAX_ADDRESSES} brokers are given addresses", hint="a --port-range has no bound")
    return tuple(found)


def _broker_address(text: str) -> BrokerAddress:
    match = _BROKER_ADDRESS.fullmatch(text)
    if match is None:
        raise UsageError(f"not an address of a broker: {text!r}", hint=_BROKER_EXAMPLE)
    first, last = int(match[1]), int(match[2] or match[1])
    target = match[3].strip()
    is_port = target.isascii() and target.isdigit()
    address = parse_address(f"broker:{target}" if is_port else target)
    if not first <= last <= MAX_NODE_ID or address.port + last - first > MAX_PORT:
        raise UsageError(f"not an address of a broker: {text!r}", hint=_BROKER_EXAMPLE)
    return BrokerAddress(first=first, last=last, host=None if is_port else address.host, port=address.port)

"""The addresses of servers as HOST:PORT, of brokers by node id, and of topics, and how they are written."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.setting import TextForm
from kafka_quotas.stores.address import ServerAddress

MAX_PORT: Final = 65_535
MAX_ADDRESSES: Final = 1_000
"""Most node ids that may be given addresses: each has a listening socket from the start."""
_BROKER_ADDRESS: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?=(.+)")
_BROKER_EXAMPLE: Final = "for example 1=20001,2=kafka-2.example:20002 or, for many at once, 1001-1099=21001"
MAX_NODE_ID: Final = 2**31 - 1
_PORT_RANGE: Final = re.compile(r"(\d{1,5})-(\d{1,5})")
SCHEME: Final = "kafka://"
_HOST_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/@\[\],]+)):(?P<port>\d{1,5})")


class ListenError(KafkaQuotasError):
    """Error for a listening socket that can't be opened."""


Address: TypeAlias = ServerAddress


def parse_address(text: str, *, may_be_zero: bool = False) -> Address:
    """Return the address that HOST:PORT means, with IPv6 in brackets, and port 0 if `may_be_zero`.

    Raises:
        UsageError: The text is not such an address.
    """
    match = _HOST_PORT.fullmatch(text.strip())
    port = int(match["port"]) if match else -1
    if match is None or not (0 if may_be_zero else 1) <= port <= MAX_PORT:
        raise UsageError(f"not a host:port: {text!r}", hint="for example 127.0.0.1:9092 or [::1]:9092")
    return Address(host=match["bracketed"] or match["host"], port=port)


def parse_local_address(text: str) -> Address:
    """Return the address that [HOST:]PORT means, on 127.0.0.1 by default, and port 0 for any free one."""
    return parse_address(f"127.0.0.1:{text.strip()}" if text.strip().isdigit() else text, may_be_zero=True)


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses in texts of HOST:PORT[,HOST:PORT...], in their order and each once."""
    found = tuple(dict.fromkeys(parse_address(part) for text in texts for part in text.split(",")))
    if not found:
        raise UsageError("no host:port is given", hint="for example broker-1:9092,broker-2:9092")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """The advertised address of one broker, or of a range of brokers with consecutive ports."""

    first: int
    last: int
    port: int
    """Port of `first`, from which the ports of the further node ids count up."""
    host: str | None = None
    """Host of these brokers; by default the host of all brokers."""


def address_of(addresses: Iterable[BrokerAddress], node_id: int) -> BrokerAddress | None:
    """Return the configured address of a node id, None without one."""
    return next((each for each in addresses if each.first <= node_id <= each.last), None)


def parse_broker_addresses(texts: Iterable[str]) -> tuple[BrokerAddress, ...]:
    """Return the addresses that ID=[HOST:]PORT or FIRST-LAST=[HOST:]PORT mean, separated by commas."""
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


def parse_port_range(text: str) -> tuple[int, int]:
    """Return the first and last port of FIRST-LAST."""
    match = _PORT_RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    if not 1 <= first <= last <= 65535:
        raise UsageError(f"not a range of ports: {text!r}", hint="for example 19093-19199")
    return first, last


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic that the daemon writes to."""

    bootstrap: str
    """One or more `HOST:PORT`, separated by commas."""
    topic: str
    properties: dict[str, str] = field(default_factory=dict)
    """librdkafka's properties of its clients."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


def parse_topic(text: str) -> TopicTarget:
    """Return the topic that `kafka://HOST:PORT/TOPIC` means."""
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicTarget(bootstrap=bootstrap, topic=topic)


_PORT: Final = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\],]+)"
_ID: Final = "[0-9]{1,10}"
TOPIC_PATTERN: Final = rf"{SCHEME}[^/\s]+/[^/\s]+"


def _list_of(one: str) -> str:
    return rf"^\s*{one}\s*(?:,\s*{one}\s*)*$"


def _ascending() -> str:
    """Return a pattern of two ports of which the first is not above the second."""
    shorter = "|".join(f"[0-9]{{{digits}}}-[0-9]{{{digits + 1},5}}" for digits in range(1, 5))
    as_long = "|".join(f"[0-9]{{{digits}}}-[0-9]{{{digits}}}" for digits in range(1, 6))
    greater = "|".join(rf"{digit}[0-9]*-\1[{digit + 1}-9][0-9]*" for digit in range(9))
    return rf"^(?={_PORT}-{_PORT}$)(?:{shorter}|(?=(?:{as_long})$)(?:([0-9]*)(?:{greater})|([0-9]+)-\2))$"


ADDRESSES: Final = TextForm(
    read=lambda text: parse_addresses([text]), read_all=parse_addresses, pattern=_list_of(f"{_HOST}:{_PORT}")
)
LISTEN: Final = TextForm(
    read=lambda text: parse_address(text, may_be_zero=True), pattern=rf"^\s*{_HOST}:(?:{_PORT}|0)\s*$"
)
LOCAL_ADDRESS: Final = TextForm(
    read=parse_local_address, pattern=rf"^\s*(?:{_HOST}:)?(?:{_PORT}|0)\s*$", integers=(0, MAX_PORT)
)
PORT_RANGE: Final = TextForm(read=parse_port_range, pattern=_ascending())
BROKER_ADDRESSES: Final = TextForm(
    read=lambda text: parse_broker_addresses([text]),
    read_all=parse_broker_addresses,
    pattern=_list_of(f"{_ID}(?:-{_ID})?=(?:{_HOST}:)?{_PORT}"),
)
TOPIC: Final = TextForm(read=parse_topic, pattern=f"^{TOPIC_PATTERN}$")

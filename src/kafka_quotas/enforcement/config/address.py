"""The address on which a server listens, as HOST:PORT."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

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
    if match is None or not (0 if may_be_zero else 1) <= port <= 65535:
        raise UsageError(f"not a host:port: {text!r}", hint="for example 127.0.0.1:9092 or [::1]:9092")
    return Address(host=match["bracketed"] or match["host"], port=port)


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses in texts of HOST:PORT[,HOST:PORT...], in their order and each once.

    Raises:
        UsageError: A part is no address, or there is none at all.
    """
    found = tuple(dict.fromkeys(parse_address(part) for text in texts for part in text.split(",")))
    if not found:
        raise UsageError("no host:port is given", hint="for example broker-1:9092,broker-2:9092")
    return found

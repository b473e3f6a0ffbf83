"""A memory of brokers that do not answer, by which a command waits for each of them only once."""

import time
from collections.abc import Callable
from typing import Final

from kafka_quotas.core.errors import StoreUnreachableError
from kafka_quotas.stores.server_address import ServerAddress

REMEMBERED_S: Final = 60.0
"""Seconds until a store that stays open, such as that of `apply --watch`, sends to a broker again."""


class UnresponsiveBrokerError(StoreUnreachableError):
    """One broker that does not answer, whatever the others of its cluster do."""


class UnresponsiveBrokers:
    """The addresses that lately gave no answer, with the reasons, shared by all connections of a command."""

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._found: dict[ServerAddress, tuple[str, float]] = {}

    def add(self, address: ServerAddress, reason: str) -> None:
        """Remember an address that gave no answer."""
        self._found[address] = (reason, self._monotonic_s() + REMEMBERED_S)

    def discard(self, address: ServerAddress) -> None:
        """Forget an address that has answered."""
        self._found.pop(address, None)

    def reason(self, address: ServerAddress) -> str | None:
        """Return why an address gave no answer, None where it is worth an attempt."""
        reason, until_s = self._found.get(address, (None, 0.0))
        return reason if until_s > self._monotonic_s() else None

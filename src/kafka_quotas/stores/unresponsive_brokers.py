"""Which brokers gave no answer, remembered so that a command waits for each of them once."""

import time
from collections.abc import Callable
from typing import Final

from kafka_quotas.core.errors import StoreUnreachableError
from kafka_quotas.stores.server_address import ServerAddress

REMEMBERED_S: Final = 60.0
"""A store that stays open, as that of `apply --watch`, asks a broker again after so long."""


class UnresponsiveBrokerError(StoreUnreachableError):
    """One broker gave no answer, whatever the others of its cluster do."""


class UnresponsiveBrokers:
    """The addresses that gave no answer lately, with the reason; all connections of a command share them."""

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._found: dict[ServerAddress, tuple[str, float]] = {}

    def add(self, address: ServerAddress, reason: str) -> None:
        """Remember an address that gave no answer."""
        self._found[address] = (reason, self._monotonic_s() + REMEMBERED_S)

    def discard(self, address: ServerAddress) -> None:
        """Forget an address, which has answered."""
        self._found.pop(address, None)

    def reason(self, address: ServerAddress) -> str | None:
        """Return why an address gave no answer, None where it did or is worth another attempt."""
        reason, until_s = self._found.get(address, (None, 0.0))
        return reason if until_s > self._monotonic_s() else None

"""Which brokers take connections: found out by connecting, remembered for a moment, asked again in the background.

Invariants: a host name is resolved again at every attempt, so no failed lookup is remembered; one attempt per broker
runs at a time, however many callers ask; a caller that asks for one broker of several never waits for one that failed
last time while another answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import Address

PROBE_S: Final = 2.0
"""Seconds that a broker gets to take a connection."""
KEPT_S: Final = 1.0
"""Seconds that a result holds for callers that only want to know: shortest time between two probes for them."""
TAKEN_S: Final = 0.1
"""Seconds that a result holds for callers about to connect, which may meet a broker that has just gone."""
RECHECK_S: Final = 2.0
"""Seconds before a broker that failed is tried again."""

Probe: TypeAlias = Callable[[Address], Awaitable[bool]]


@dataclass(slots=True, kw_only=True)
class _Result:
    """The result of the last finished attempt, its time, and the attempt under way."""

    answers: bool = True
    at_s: float = float("-inf")
    """Time of the last finished attempt, by the loop's clock."""
    attempt: asyncio.Task[bool] | None = None


class UpstreamHealth:
    """The record of which broker addresses take connections."""

    def __init__(self, *, probe: Probe | None = None) -> None:
        self._probe = probe or takes_connections
        self._results: dict[Address, _Result] = {}

    def failed(self, address: Address) -> None:
        """Record a failed connection to a broker."""
        result = self._results.setdefault(address, _Result())
        result.answers, result.at_s = False, asyncio.get_running_loop().time()

    def preferred(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses in their order, those that failed at the last attempt after all others."""
        return sorted(addresses, key=self._is_failing)

    async def answers(self, address: Address, *, kept_s: float = KEPT_S) -> bool:
        """Return whether a broker takes connections, by a result at most `kept_s` old."""
        result = self._results.setdefault(address, _Result())
        if result.attempt is None and asyncio.get_running_loop().time() - result.at_s <= kept_s:
            return result.answers
        return await asyncio.shield(self._attempt(address, result))

    async def first_answering(self, addresses: Iterable[Address], *, kept_s: float = KEPT_S) -> Address | None:
        """Return the first broker that takes connections, None where none does.

        The one that comes first is tried alone. Where it fails, or failed the last time, all are tried side by side.
        """
        ordered = self.preferred(addresses)
        if not ordered:
            return None
        self._try_failing_again(ordered)
        first, *others = ordered
        if not self._is_failing(first):
            if await self.answers(first, kept_s=kept_s):
                return first
            ordered = others
        attempts = [asyncio.ensure_future(self._found(address)) for address in ordered]
        try:
            for done in asyncio.as_completed(attempts):
                if (found := await done) is not None:
                    return found
        finally:
            for attempt in attempts:
                attempt.cancel()
        return None

    def close(self) -> None:
        """Stop every attempt under way."""
        for result in self._results.values():
            if result.attempt is not None:
                result.attempt.cancel()

    async def _found(self, address: Address) -> Address | None:
        return address if await self.answers(address) else None

    def _is_failing(self, address: Address) -> bool:
        result = self._results.get(address)
        return result is not None and not result.answers

    def _try_failing_again(self, addresses: Iterable[Address]) -> None:
        """Start an attempt in the background at each broker that failed some time ago."""
        now_s = asyncio.get_running_loop().time()
        for address in addresses:
            result = self._results.get(address)
            if result is not None and not result.answers and now_s - result.at_s > RECHECK_S:
                self._attempt(address, result)

    def _attempt(self, address: Address, result: _Result) -> asyncio.Task[bool]:
        if result.attempt is None:
            result.attempt = asyncio.get_running_loop().create_task(self._try(address, result))
        return result.attempt

    async def _try(self, address: Address, result: _Result) -> bool:
        try:
            result.answers = await self._probe(address)
            return result.answers
        finally:
            result.at_s, result.attempt = asyncio.get_running_loop().time(), None


async def takes_connections(address: Address) -> bool:
    """Return whether something at an address takes a connection within `PROBE_S`."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (TimeoutError, OSError, UnicodeError):  # a name that no resolver can be asked for is a UnicodeError
        return False
    writer.close()
    return True

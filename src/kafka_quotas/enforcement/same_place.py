"""Whether an address that a broker is known by is the one behind a bootstrap address, under another name.

A bootstrap address is often an alias of what a broker advertises. Names are looked up apart from the event loop, and
again after a while as long as nothing is known: a lookup may have failed, and what a name stands for may change.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kafka_quotas.enforcement.address import Address

MAX_ASKED: Final = 1000
"""How many addresses are looked up at most: they come from brokers, which should be few."""
AGAIN_S: Final = 5.0
"""How long an address that was looked up is not looked up again."""


def is_same_place(ours: set[str], theirs: set[str]) -> bool:
    """Whether a bootstrap name that stands for `ours` can only lead to a broker that is known by `theirs`.

    A name for several brokers stands for more than one of them knows. One family of addresses is enough: the bootstrap
    name may have both and the broker's only one.
    """
    families = {":" in address for address in theirs}
    compared = {address for address in ours if (":" in address) in families}
    return bool(compared) and compared <= theirs


class SamePlace:
    """Compares addresses with one that was given, by what their names stand for."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address = address
        self._loop = loop
        self._asked_s: dict[Address, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, address: Address, on_same: Callable[[], None]) -> None:
        """Call `on_same` as soon as it is known that both lead to the same place; to be asked until then."""
        now_s = self._loop.time()
        asked_s = self._asked_s.get(address)
        is_new = asked_s is None and len(self._asked_s) < MAX_ASKED
        if address.port != self._address.port or not (is_new or (asked_s is not None and now_s - asked_s >= AGAIN_S)):
            return
        self._asked_s[address] = now_s
        task = self._loop.create_task(self._compare(address, on_same))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop every lookup."""
        for task in list(self._tasks):
            task.cancel()

    async def _compare(self, address: Address, on_same: Callable[[], None]) -> None:
        ours, theirs = await asyncio.gather(self._places(self._address), self._places(address))
        if is_same_place(ours, theirs):
            on_same()

    async def _places(self, address: Address) -> set[str]:
        """The addresses that a host name stands for, none where it can't be looked up."""
        with contextlib.suppress(OSError, UnicodeError):
            found = await self._loop.getaddrinfo(address.host, address.port)
            return {str(place[0]).removeprefix("::ffff:") for _, _, _, _, place in found}
        return set()

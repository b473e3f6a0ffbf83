"""The registry of which listener leads to which broker.

Invariants: a broker is known by its node id and keeps its listener when its address changes; a listener is open before
any client gets its address. The bootstrap listener is no broker's own, unless it was given to one; it has a route for
each bootstrap server. Its address shows which broker one of them is: the very one that was given.

Whether an address that a broker is known by is that of a bootstrap server, under another name.

A bootstrap address is often an alias of what a broker advertises. Names are looked up apart from the event loop, and
again after a while as long as nothing is known: a lookup may have failed, and what a name resolves to may change.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route

OpenListener: TypeAlias = Callable[[Route], int]
"""Opens a listener for a route and returns its port; raises `ListenError` where it can't."""
OnNamed: TypeAlias = Callable[[Route, NodeId], None]
"""Receives a bootstrap route that has its broker's id now, and the placeholder it had before."""
OnMoved: TypeAlias = Callable[[Route], None]
"""Receives a route whose upstream address has changed."""


class BrokerRegistry:
    """The routes of one listener by node id.

    Args:
        owner: Node id of the broker that the bootstrap listener belongs to, None for no broker.
    """

    def __init__(
        self,
        bootstraps: Sequence[Route],
        *,
        open_listener: OpenListener,
        on_named: OnNamed,
        on_moved: OnMoved,
        on_located: OnMoved,
        owner: int | None = None,
    ) -> None:
        self.bootstraps = tuple(bootstraps)
        self._servers = tuple((route, route.upstream) for route in bootstraps)
        self._open_listener = open_listener
        self._on_named = on_named
        self._on_moved = on_moved
        self._on_located = on_located
        self._routes: dict[int, Route] = {} if owner is None else {owner: bootstraps[0]}

    @property
    def routes(self) -> list[Route]:
        """Every route, those of the bootstrap servers first."""
        return [*self.bootstraps, *(route for _, route in sorted(self._routes.items()) if route not in self.bootstraps)]

    def known(self, node_id: int) -> Route | None:
        """Return the route to a broker, None for one that was neither met nor announced."""
        return self._routes.get(node_id)

    def announce(self, node_id: int) -> None:
        """Open the listener of a broker whose address is not known yet.

        Until the address is known, the route leads to a bootstrap server.

        Raises:
            ListenError: No listener can be opened.
        """
        if node_id not in self._routes:
            self._routes[node_id] = self._open(node_id, self.bootstraps[0].upstream, is_located=False)

    def route(self, node_id: int, address: Address) -> Route:
        """Return the route to the broker at this address, with its listener open.

        Raises:
            ListenError: No listener can be opened for a broker met for the first time.
        """
        for bootstrap, server in self._servers:
            if server == address:
                self.name(bootstrap, node_id)
        route = self._routes.get(node_id)
        if route is None:
            route = self._routes[node_id] = self._open(node_id, address, is_located=True)
        was_located, route.is_located = route.is_located, True
        if route.upstream != address:
            route.upstream = address
            (self._on_moved if was_located else self._on_located)(route)
        return route

    def name(self, bootstrap: Route, node_id: int) -> None:
        """Record the broker of a bootstrap server, unless one is known already."""
        if not bootstrap.is_named:
            placeholder, bootstrap.node_id = bootstrap.node_id, node_id
            self._on_named(bootstrap, placeholder)

    def _open(self, node_id: int, address: Address, *, is_located: bool) -> Route:
        route = Route(node_id=node_id, port=0, upstream=address, is_located=is_located)
        route.port = self._open_listener(route)
        return route


MAX_ASKED: Final = 1000
"""Most addresses that are looked up: brokers report them, and should be few."""
AGAIN_S: Final = 5.0
"""Seconds before an address is looked up again."""


def is_same_endpoint(ours: set[str], theirs: set[str]) -> bool:
    """Return whether a bootstrap name that resolves to `ours` can only lead to the broker at `theirs`.

    A name of several brokers resolves to more addresses than any one of them has. One family of addresses is enough:
    the bootstrap name may have both and the broker's only one.
    """
    families = {":" in address for address in theirs}
    compared = {address for address in ours if (":" in address) in families}
    return bool(compared) and compared <= theirs


class BootstrapAlias:
    """The comparison of other addresses with a bootstrap address, by what their names resolve to."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address = address
        self._loop = loop
        self._asked_s: dict[Address, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, address: Address, on_same: Callable[[], None]) -> None:
        """Look both addresses up, unless that was lately, and call `on_same` if they lead to the same place."""
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
        ours, theirs = await asyncio.gather(self._resolved(self._address), self._resolved(address))
        if is_same_endpoint(ours, theirs):
            on_same()

    async def _resolved(self, address: Address) -> set[str]:
        """Return the addresses that a host name resolves to, none where the lookup fails."""
        with contextlib.suppress(OSError, UnicodeError):
            found = await self._loop.getaddrinfo(address.host, address.port)
            return {str(address[0]).removeprefix("::ffff:") for _, _, _, _, address in found}
        return set()

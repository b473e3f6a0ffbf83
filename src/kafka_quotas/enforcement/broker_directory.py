"""Which listener leads to which broker.

Invariants: a broker is known by its node id and keeps its listener when its address changes; a listener is open before
its address is handed to anybody. The bootstrap listener is no broker's own, unless it was given to one; it has a route
for each bootstrap server. Which broker is behind one of them is found out by its address: the very one that was given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.policy import NodeId


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """A listener's port and the broker it leads to: `upstream` changes when the broker moves.

    A `node_id` that is None or negative stands for the broker behind a bootstrap server until its own id is known.
    """

    node_id: NodeId
    port: int
    upstream: Address
    is_located: bool = True
    """Whether `upstream` is the broker's own address; until that is known it is a bootstrap server's."""

    @property
    def is_named(self) -> bool:
        """Whether the broker's node id is known."""
        return self.node_id is not None and self.node_id >= 0


OpenListener: TypeAlias = Callable[[Route], int]
"""Opens a listener for a route and returns its port; raises `ListenError` where there is none to be had."""
OnNamed: TypeAlias = Callable[[Route, NodeId], None]
"""Is told a bootstrap route, which has its broker's id now, and what stood for that before."""
OnMoved: TypeAlias = Callable[[Route], None]
"""Is told a route that leads to another address now."""


class BrokerDirectory:
    """The routes by node id; `owner` is the broker that the bootstrap listener is given to, None for no broker."""

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
        others = (route for _, route in sorted(self._routes.items()) if route not in self.bootstraps)
        return [*self.bootstraps, *others]

    def known(self, node_id: int) -> Route | None:
        """Return the route to a broker that was met or announced before."""
        return self._routes.get(node_id)

    def announce(self, node_id: int) -> None:
        """Open the listener of a broker whose address is not known yet; until it is, a bootstrap server is behind it.

        Raises:
            ListenError: where no listener can be opened.
        """
        if node_id not in self._routes:
            self._routes[node_id] = self._open(node_id, self.bootstraps[0].upstream, is_located=False)

    def route(self, node_id: int, address: Address) -> Route:
        """Return the route to a broker, which is at this address now; its listener is open.

        Raises:
            ListenError: where no listener can be opened for a broker met for the first time.
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
        """Take note that this broker is behind a bootstrap server, unless another one is known to be."""
        if not bootstrap.is_named:
            placeholder, bootstrap.node_id = bootstrap.node_id, node_id
            self._on_named(bootstrap, placeholder)

    def _open(self, node_id: int, address: Address, *, is_located: bool) -> Route:
        route = Route(node_id=node_id, port=0, upstream=address, is_located=is_located)
        route.port = self._open_listener(route)
        return route

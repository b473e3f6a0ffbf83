"""Which listener leads to which broker.

Invariants: a broker is known by its node id and keeps its listener when its address changes; a listener is open before
its address is handed to anybody. The broker behind the bootstrap address is found out by its address: where that is
the very one that was given, the bootstrap listener becomes the broker's own (unless brokers have names of their own).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.policy import NodeId


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """A listener's port and the broker it leads to: `upstream` changes when the broker moves.

    A `node_id` that is None or negative stands for the broker behind a bootstrap address until its own id is known.
    """

    node_id: NodeId
    port: int
    upstream: Address


OpenListener: TypeAlias = Callable[[Route], int]
"""Opens a listener for a route and returns its port; raises `ListenError` where there is none to be had."""
OnNamed: TypeAlias = Callable[[Route, NodeId], None]
"""Is told the bootstrap route, which has its broker's id now, and what stood for that before."""
OnMoved: TypeAlias = Callable[[Route], None]
"""Is told a route that leads to another address now."""


class BrokerDirectory:
    """The routes by node id."""

    def __init__(
        self,
        bootstrap: Route,
        *,
        open_listener: OpenListener,
        on_named: OnNamed,
        on_moved: OnMoved,
        is_shared: bool = True,
    ) -> None:
        self._bootstrap = bootstrap
        self._first_upstream = bootstrap.upstream
        self._open_listener = open_listener
        self._on_named = on_named
        self._on_moved = on_moved
        self._is_shared = is_shared
        self._routes: dict[int, Route] = {}

    @property
    def routes(self) -> list[Route]:
        """Every route, the bootstrap's first."""
        others = (route for _, route in sorted(self._routes.items()) if route is not self._bootstrap)
        return [self._bootstrap, *others]

    @property
    def is_named(self) -> bool:
        """Whether it is known which broker is behind the bootstrap address."""
        return self._bootstrap.node_id is not None and self._bootstrap.node_id >= 0

    def known(self, node_id: int) -> Route | None:
        """The route to a broker that was met before."""
        return self._routes.get(node_id)

    def route(self, node_id: int, address: Address) -> Route:
        """The route to a broker, which is at this address now; its listener is open.

        Raises `ListenError` where no listener can be opened for a broker met for the first time.
        """
        route = self._routes.get(node_id)
        if route is None:
            route = self._routes[node_id] = self._adopt(node_id, address) or self._open(node_id, address)
        if route.upstream != address:
            route.upstream = address
            self._on_moved(route)
        return route

    def name(self, node_id: int) -> None:
        """Nothing; the broker behind the bootstrap address is this one. It may have a listener of its own already."""
        if not self.is_named:
            placeholder, self._bootstrap.node_id = self._bootstrap.node_id, node_id
            self._on_named(self._bootstrap, placeholder)

    def _adopt(self, node_id: int, address: Address) -> Route | None:
        """The bootstrap route, if it is this node's and no other's."""
        if not self.is_named and address == self._first_upstream:
            self.name(node_id)
        return self._bootstrap if self._is_shared and self._bootstrap.node_id == node_id else None

    def _open(self, node_id: int, address: Address) -> Route:
        route = Route(node_id=node_id, port=0, upstream=address)
        route.port = self._open_listener(route)
        return route

"""Which listener leads to which broker.

Invariants: a broker is known by its node id and keeps its listener when its address changes; a listener is open before
its address is handed to anybody; the one behind `--listen` becomes that of the node that turns out to have the
upstream's address, so that this broker has one set of buckets and not two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.policy import NodeId


@dataclass(slots=True, kw_only=True)
class Route:
    """A listener's port and the broker it leads to: `upstream` changes when the broker moves."""

    node_id: NodeId
    port: int
    upstream: Address


OpenListener: TypeAlias = Callable[[Route], int]
"""Opens a listener for a route and returns its port; raises `ListenError` where there is none to be had."""
NameBootstrap: TypeAlias = Callable[[int], None]


class BrokerDirectory:
    """The routes by node id."""

    def __init__(self, bootstrap: Route, *, open_listener: OpenListener, name_bootstrap: NameBootstrap) -> None:
        self._bootstrap = bootstrap
        self._first_upstream = bootstrap.upstream
        self._open_listener = open_listener
        self._name_bootstrap = name_bootstrap
        self._routes: dict[int, Route] = {}

    @property
    def routes(self) -> list[Route]:
        """Every route, the bootstrap's first."""
        others = (route for _, route in sorted(self._routes.items()) if route is not self._bootstrap)
        return [self._bootstrap, *others]

    def port_of(self, node_id: int, address: Address) -> int:
        """The port of the open listener that leads to a broker, which is at this address now.

        Raises `ListenError` where no listener can be opened for a broker met for the first time.
        """
        route = self._routes.get(node_id)
        if route is None:
            route = self._routes[node_id] = self._adopt(node_id, address) or self._open(node_id, address)
        if route.upstream != address:
            route.upstream = address
        return route.port

    def _adopt(self, node_id: int, address: Address) -> Route | None:
        """The bootstrap route, if it is this node's and no other's."""
        if self._bootstrap.node_id is not None or address != self._first_upstream:
            return None
        self._bootstrap.node_id = node_id
        self._name_bootstrap(node_id)
        return self._bootstrap

    def _open(self, node_id: int, address: Address) -> Route:
        route = Route(node_id=node_id, port=0, upstream=address)
        route.port = self._open_listener(route)
        return route

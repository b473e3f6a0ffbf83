"""One listener of the daemon as clients see it: its bootstrap address, and the route to each broker of its cluster.

Invariants: a broker's listener is open before any client gets its address, at a port that follows from its node id;
quotas go by node id, so it is the same broker whichever listener, name or address it was reached by. Of several
bootstrap servers a connection gets to one that takes connections.
"""

import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.config.address import Address, ListenError, address_of
from kafka_quotas.enforcement.config.listener_settings import ANYWHERE, BrokerPorts, ListenerSettings
from kafka_quotas.enforcement.config.principal_mapping import PrincipalMapping
from kafka_quotas.enforcement.proxy.admission import Acceptor, AdmittingListener
from kafka_quotas.enforcement.proxy.brokers import (
    TAKEN_S,
    BootstrapAlias,
    BrokerRegistry,
    RouteChange,
    UpstreamConfig,
    reloading_context,
)
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionSlot
from kafka_quotas.enforcement.proxy.context import ServerContext, bind
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel


class Listener(AdmittingListener):
    """A bootstrap listener and the listeners of the brokers that clients met through it.

    Args:
        ports: The ports that it gives its brokers.
        placeholders: Names of the bootstrap servers until their node ids are known.
        admitted: Serves each connection that has passed the checks.
        changed: Takes each change of a route, with the node id that the route had before.
    """

    def __init__(
        self,
        context: ServerContext,
        settings: ListenerSettings,
        *,
        ports: BrokerPorts,
        placeholders: Sequence[NodeId],
        admitted: "Callable[[Listener, socket.socket, Route, Address, ConnectionSlot], None]",
        changed: Callable[[Route, RouteChange, NodeId], None],
    ) -> None:
        self.context = context
        self.admitted = partial(admitted, self)
        self._ports = ports
        self._acceptors: dict[str, Acceptor] = {}
        self.role_ports: dict[str, int] = {}
        """The ports that it listens on by their roles, which the daemon's other processes ask for."""
        self._unopened: dict[int, str] = {}
        tls = partial(reloading_context, clock=context.clock, notify=context.notify)
        self._tls = tls(settings.tls, is_server=True)
        self._upstream_tls = tls(settings.upstream_tls, is_server=False)
        names = placeholders if settings.upstream_node_id is None else [settings.upstream_node_id]
        owner = settings.bootstrap_owner
        bootstraps = [
            Route(
                node_id=name if owner is None else owner,
                port=settings.listen.port,
                upstream=server,
                is_bootstrap=True,
                listener=settings.name,
            )
            for name, server in zip(names, settings.upstreams, strict=True)
        ]
        self.brokers = BrokerRegistry(bootstraps, open_listener=self._open_for_broker, changed=changed, owner=owner)
        self._aliases = [(route, BootstrapAlias(route.upstream, context.loop)) for route in bootstraps]
        self.follow(settings)
        port = self._open(None, self.preferred, settings.listen.host, settings.listen.port)
        for route in bootstraps:
            route.port = port
        for each in settings.broker_addresses:
            for node_id in range(each.first, each.last + 1):
                self.brokers.announce(node_id)

    def follow(self, settings: ListenerSettings) -> None:
        """Apply these settings, but for those that `refuse_restart` guards, from the next connection on."""
        rules = self.context.settings.rules
        self.settings = settings
        self.mapping = PrincipalMapping(settings.principal_mapping)
        self.rules = replace(
            rules,
            principal=settings.principal or rules.principal,
            requires_authentication=settings.requires_authentication,
            oauthbearer_claim=settings.oauthbearer_claim,
            max_in_flight=settings.max_in_flight,
            allowed_apis=settings.allowed_apis,
            denied_apis=settings.denied_apis,
        )
        for route in self.brokers.routes if self._acceptors else ():
            self.connections(route).look_again()

    def advertised(self, route: Route) -> Address:
        """Return the address of a route for clients, unless it depends on the address they reached."""
        own = None if route.node_id is None or route.node_id < 0 else self.settings.broker_host(route.node_id)
        return Address(host=own or self.settings.advertised_host or self.settings.listen.host, port=route.port)

    def upstream_config(self, route: Route) -> UpstreamConfig:
        """Return how connections of a route reach their broker at the moment."""
        return UpstreamConfig(
            upstream=route.upstream,
            timeout_s=self.context.settings.connect_timeout_s,
            client_tls=None if self._tls is None else self._tls.context,
            upstream_tls=None if self._upstream_tls is None else self._upstream_tls.context,
        )

    def translation(self, client: socket.socket) -> Callable[[int, str, int], tuple[str, int]]:
        """Return the function that replaces a broker's address with the one this client connects to."""
        host = self.settings.listen.host
        if self.settings.advertised_host is None and host in ANYWHERE:
            with contextlib.suppress(OSError):  # the client is gone already
                host = str(client.getsockname()[0]).removeprefix("::ffff:")
        towards = self.settings.advertised_host or host

        def translate(node_id: int, host: str, port: int) -> tuple[str, int]:
            address = Address(host=host, port=port)
            route = self.brokers.route(node_id, address)
            for bootstrap, alias in self._aliases:
                if not bootstrap.is_named:
                    alias.ask(address, partial(self.brokers.name, bootstrap, node_id))
            return self.settings.broker_host(node_id) or towards, route.port

        return translate

    def meet(self, node_id: int, shared: Route) -> None:
        """Take up a route that another process knows: open a broker's listener, or name a bootstrap server.

        A broker that the settings have no port for any more is logged and left out.
        """
        if not shared.is_bootstrap:
            with contextlib.suppress(ListenError):
                self.brokers.route(node_id, shared.upstream)
            return
        for route in self.brokers.bootstraps:
            if route.upstream == shared.upstream:
                self.brokers.name(route, node_id)

    def own_route(self, shared: Route) -> Route:
        """Return this process's own route for one that another process has."""
        brokers = self.brokers
        if shared.is_bootstrap or shared.node_id is None:
            found = (route for route in brokers.bootstraps if route.upstream == shared.upstream)
            return next(found, brokers.bootstraps[0])
        if shared.is_located:
            return brokers.route(shared.node_id, shared.upstream)
        brokers.announce(shared.node_id)
        route = brokers.known(shared.node_id)
        assert route is not None
        if not route.is_located:
            route.upstream = shared.upstream
        return route

    def close(self) -> None:
        """Stop accepting connections and stop all lookups."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._acceptors.clear()
        for _, alias in self._aliases:
            alias.close()

    def _open_for_broker(self, route: Route) -> int:
        assert route.node_id is not None
        try:
            route.port = port = self._opened(route, route.node_id)
        except ListenError as error:
            # Once per broker and reason: clients get no address for it, and ask again and again.
            if self._unopened.get(route.node_id) != error.message:
                self._unopened[route.node_id] = error.message
                hint = {"hint": error.hint} if error.hint else {}
                event, name = "clients can't be sent to a broker", self.settings.name
                self.context.notify(LogEvent.of(event, LogLevel.ERROR, listener=name, error=error.message, **hint))
            raise
        listen, upstream = str(self.advertised(route)), str(route.upstream)
        opened = LogEvent.of("listener opened", broker=str(route.node_id), listen=listen, upstream=upstream)
        self.context.notify(opened)
        return port

    def _opened(self, route: Route, node_id: int) -> int:
        settings, port = self.settings, self.brokers.bootstraps[0].port
        if settings.shares_port:
            return port
        host = settings.listen.host
        if settings.host_pattern is None or address_of(settings.broker_addresses, node_id) is not None:
            port = self._ports.port(node_id)
        if settings.host_pattern is not None:
            host = settings.broker_host(node_id) or host
        try:
            return self._open(node_id, lambda: route, host, port, upstream=route.upstream, is_any=not route.is_located)
        except ListenError as error:
            raise ListenError(
                f"broker {node_id} has no listener: {error.message}, port {port}",
                hint=f"free the port, or name another: --broker-address {node_id}=PORT",
            ) from error

    def _open(
        self,
        node_id: int | None,
        route: Callable[[], Route],
        host: str,
        port: int,
        *,
        upstream: Address | None = None,
        is_any: bool = True,
    ) -> int:
        """Accept connections for a route, or for any bootstrap server, and return the port."""
        role = f"{self.settings.name}/{'bootstrap' if node_id is None else node_id}"
        if self.context.port_of is not None:
            return self.context.port_of(role, upstream)
        sock = bind(host, port)
        is_any = is_any and len(self.settings.upstreams) > 1
        self._acceptors[role] = Acceptor(self, sock, route, reached=self.reached if is_any else None)
        bound = self.role_ports[role] = int(sock.getsockname()[1])
        return bound

    def route_by_host(self, host: str | None) -> Route:
        """Return the route of the broker that a TLS client names, the bootstrap route for any other name."""
        node_id = None if host is None else self.settings.node_of(host)
        if node_id is None:
            return self.preferred()
        route = self.brokers.known(node_id)
        if route is None:
            raise ProtocolError(f"no broker {node_id} is known, which {host} stands for")
        return route

    def preferred(self) -> Route:
        """Return the route to the first bootstrap server that did not fail last time."""
        routes = {route.upstream: route for route in reversed(self.brokers.bootstraps)}
        return routes[self.context.health.preferred(route.upstream for route in self.brokers.bootstraps)[0]]

    async def reached(self, route: Route) -> Route:
        """Return a route to a bootstrap server that takes connections in place of one to any of them.

        A broker without a known address is looked for through such a server as well.
        """
        servers = {each.upstream: each for each in self.brokers.bootstraps}
        if len(servers) == 1 or (route not in self.brokers.bootstraps and route.is_located):
            return route
        answering = await self.context.health.first_answering(servers, kept_s=TAKEN_S)
        if answering is None:
            return route
        if route.is_located:
            return servers[answering]
        route.upstream = answering
        return route

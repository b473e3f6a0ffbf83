"""TLS contexts that follow their files: a renewed certificate is served from the next connection on.

Invariants: files are looked at when a connection comes, at most once a second; a change that can't be used is logged
once and the context before stays.

One listener of the daemon as clients see it: its bootstrap address, and the route to each broker of its cluster.

Invariants: a broker's listener is open before any client gets its address, at a port that follows from its node id;
quotas go by node id, so it is the same broker whichever listener, name or address it was reached by. Of several
bootstrap servers a connection gets to one that takes connections.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.config.address import Address, ListenError, address_of
from kafka_quotas.enforcement.config.listener_settings import BrokerPorts, ListenerSettings
from kafka_quotas.enforcement.config.principal_mapping import PrincipalMapping
from kafka_quotas.enforcement.proxy.admission import AcceptedConnection, ConnectionAdmission
from kafka_quotas.enforcement.proxy.brokers import (
    TAKEN_S,
    BootstrapAlias,
    BrokerRegistry,
    UpstreamConfig,
    UpstreamHealth,
)
from kafka_quotas.enforcement.proxy.connection_quotas import BrokerConnectionQuotas
from kafka_quotas.enforcement.proxy.context import ProxyContext
from kafka_quotas.enforcement.proxy.sockets import listener_role
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

LOOK_MS: Final = 1000
"""Shortest time between two looks at the files."""

_Seen: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Per file its time of change (ns), size and inode, None if it is missing."""


class ReloadingTlsContext:
    """One TLS context that `make` makes, at first in the constructor, and the files that it reads."""

    def __init__(
        self, make: Callable[[], ssl.SSLContext], files: Iterable[Path], *, clock: Clock, notify: Notify
    ) -> None:
        self._make = make
        self._files = tuple(files)
        self._now_ms = clock.now_ms
        self._notify = notify
        self._seen = self._look()
        self._looked_ms = self._now_ms()
        self._context = make()

    @property
    def context(self) -> ssl.SSLContext:
        """The context made from the files as they are now."""
        now_ms = self._now_ms()
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._renew()
        return self._context

    def _renew(self) -> None:
        names = ", ".join(str(file) for file in self._files)
        try:
            self._context = self._make()
        except KafkaQuotasError as error:
            self._notify(
                LogEvent.failure("changed certificates can't be used; the earlier ones stay in use", error, files=names)
            )
        else:
            self._notify(LogEvent(event="certificates read again", fields={"files": names}))

    def _look(self) -> _Seen:
        return tuple(map(_state, self._files))


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


_ANY: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


class Listener:
    """A bootstrap listener and the listeners of the brokers that clients met through it."""

    def __init__(
        self,
        context: ProxyContext,
        settings: ListenerSettings,
        *,
        ports: BrokerPorts,
        placeholders: Sequence[NodeId],
        health: UpstreamHealth,
        connect_timeout_s: float,
        is_shadow: bool,
        connections: Callable[[Route], BrokerConnectionQuotas],
        serve: Callable[["Listener", AcceptedConnection], None],
        on_named: Callable[[Route, NodeId], None],
        on_moved: Callable[[Route], None],
        on_located: Callable[[Route], None],
    ) -> None:
        self.settings = settings
        self.mapping = PrincipalMapping(settings.principal_mapping)
        self._context = context
        self._connect_timeout_s = connect_timeout_s
        self._is_shadow = is_shadow
        self._connections = connections
        self._serve = partial(serve, self)
        self._admissions: dict[str, ConnectionAdmission] = {}
        self._tls = self._keeper(settings.tls, is_server=True)
        self._upstream_tls = self._keeper(settings.upstream_tls, is_server=False)
        self._ports = ports
        self._health = health
        self._unopened: dict[int, str] = {}
        names = placeholders if settings.upstream_node_id is None else [settings.upstream_node_id]
        owner = settings.bootstrap_owner
        bootstraps = [
            Route(node_id=name if owner is None else owner, port=settings.listen.port, upstream=server)
            for name, server in zip(names, settings.upstreams, strict=True)
        ]
        self.brokers = BrokerRegistry(
            bootstraps,
            open_listener=self._open_for_broker,
            on_named=on_named,
            on_moved=on_moved,
            on_located=on_located,
            owner=owner,
        )
        self._aliases = [(route, BootstrapAlias(route.upstream, context.loop)) for route in bootstraps]
        port = self._open(None, self._preferred, settings.listen.host, settings.listen.port)
        for route in bootstraps:
            route.port = port
        for each in settings.broker_addresses:
            for node_id in range(each.first, each.last + 1):
                self.brokers.announce(node_id)

    def follow(self, settings: ListenerSettings) -> None:
        """Apply these settings, but for those that `refuse_restart` guards, from the next connection on."""
        self.settings = settings
        self.mapping = PrincipalMapping(settings.principal_mapping)
        for admission in self._admissions.values():
            admission.settings = settings
        for route in self.brokers.routes:
            self._connections(route).look_again()

    def advertised(self, route: Route) -> Address:
        """Return the address of a route for clients, unless it depends on the address they reached."""
        own = None if route.node_id is None or route.node_id < 0 else self.settings.broker_host(route.node_id)
        return Address(host=own or self.settings.advertised_host or self.settings.listen.host, port=route.port)

    def upstream_config(self, route: Route) -> UpstreamConfig:
        """Return how connections of a route reach their broker at the moment."""
        return UpstreamConfig(
            upstream=route.upstream,
            timeout_s=self._connect_timeout_s,
            client_tls=None if self._tls is None else self._tls.context,
            upstream_tls=None if self._upstream_tls is None else self._upstream_tls.context,
        )

    def translation(self, client: socket.socket) -> Callable[[int, str, int], tuple[str, int]]:
        """Return the function that replaces a broker's address with the one this client connects to."""
        host = self.settings.listen.host
        if self.settings.advertised_host is None and host in _ANY:
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

    def sockets(self) -> dict[str, socket.socket]:
        """Return the listening sockets by their roles."""
        return {role: admission.listening for role, admission in self._admissions.items()}

    def meet(self, node_id: int, upstream: Address, *, is_bootstrap: bool) -> None:
        """Take up a route that another process knows: open a broker's listener, or name a bootstrap server.

        A broker that the settings have no port for any more is logged and left out.
        """
        if not is_bootstrap:
            with contextlib.suppress(ListenError):
                self.brokers.route(node_id, upstream)
            return
        for route in self.brokers.bootstraps:
            if route.upstream == upstream:
                self.brokers.name(route, node_id)

    def close(self) -> None:
        """Stop accepting connections and stop all lookups."""
        for admission in self._admissions.values():
            admission.close()
        self._admissions.clear()
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
                fields: dict[str, str | float] = {"listener": self.settings.name, "error": error.message}
                if error.hint:
                    fields["hint"] = error.hint
                event = "clients can't be sent to a broker"
                self._context.notify(LogEvent(event=event, level=LogLevel.ERROR, fields=fields))
            raise
        names = {"broker": str(route.node_id), "listen": str(self.advertised(route)), "upstream": str(route.upstream)}
        self._context.notify(LogEvent(event="listener opened", fields={**names}))
        return port

    def _opened(self, route: Route, node_id: int) -> int:
        settings, port = self.settings, self.brokers.bootstraps[0].port
        if settings.shares_port:
            return port
        host = settings.listen.host
        given = address_of(settings.broker_addresses, node_id)
        if settings.host_pattern is None or given is not None:
            port = self._ports.port(node_id)
        if settings.host_pattern is not None:
            host = settings.broker_host(node_id) or host
        try:
            return self._open(
                node_id, lambda: route, host, port, upstream=route.upstream, is_bootstrap=not route.is_located
            )
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
        is_bootstrap: bool = True,
    ) -> int:
        role = listener_role(self.settings.name, node_id)
        admission = ConnectionAdmission(
            self._context,
            self._context.sockets.bind(role, host, port, upstream=upstream),
            settings=self.settings,
            route=route,
            route_by_host=self._route_by_host,
            reached=self.reached if is_bootstrap and len(self.settings.upstreams) > 1 else None,
            connections=self._connections,
            serve=self._serve,
            timeout_s=self._connect_timeout_s,
            is_shadow=self._is_shadow,
        )
        self._admissions[role] = admission
        return admission.port

    def _route_by_host(self, host: str | None) -> Route:
        """Return the route of the broker that a TLS client names, the bootstrap route for any other name."""
        node_id = None if host is None else self.settings.node_of(host)
        if node_id is None:
            return self._preferred()
        route = self.brokers.known(node_id)
        if route is None:
            raise ProtocolError(f"no broker {node_id} is known, which {host} stands for")
        return route

    def _preferred(self) -> Route:
        routes = {route.upstream: route for route in reversed(self.brokers.bootstraps)}
        return routes[self._health.preferred(route.upstream for route in self.brokers.bootstraps)[0]]

    async def reached(self, route: Route) -> Route:
        """Return a route to a bootstrap server that takes connections in place of one to any of them.

        A broker without a known address is looked for through such a server as well.
        """
        servers = {each.upstream: each for each in self.brokers.bootstraps}
        if len(servers) == 1 or (route not in self.brokers.bootstraps and route.is_located):
            return route
        answering = await self._health.first_answering(servers, kept_s=TAKEN_S)
        if answering is None:
            return route
        if route.is_located:
            return servers[answering]
        route.upstream = answering
        return route

    def _keeper(self, properties: Mapping[str, str] | None, *, is_server: bool) -> ReloadingTlsContext | None:
        """Return the TLS context that follows the files of these properties, None without properties."""
        if properties is None:
            return None
        from kafka_quotas.stores.security.tls import (  # noqa: PLC0415 - as above
            STORE_LOCATIONS,
            server_tls_context,
            tls_context,
        )

        make: Callable[[], ssl.SSLContext] = partial(server_tls_context if is_server else tls_context, properties)
        files = [Path(properties[name]) for name in STORE_LOCATIONS if properties.get(name)]
        return ReloadingTlsContext(make, files, clock=self._context.clock, notify=self._context.notify)

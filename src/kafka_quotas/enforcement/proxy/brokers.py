"""Brokers: how each is reached, which of them take connections, and which listener leads to which.

Invariants of connections: a host name is resolved again at every attempt, so no failed lookup is remembered; one
attempt per broker runs at a time, however many callers ask; a caller that asks for one broker of several never waits
for one that failed last time while another answers. TLS contexts follow their files, so a renewed certificate is served
from the next connection on; a change that can't be used is logged once and the context before stays.

Invariants of routes: a broker is known by its node id and keeps its listener when its address changes; a listener is
open before any client gets its address. The bootstrap listener is not a broker's own, unless it was given to one; it
has a route for each bootstrap server. A bootstrap server is a broker if their addresses are the same, or lead to the
same place: names are looked up, and again after a while, because a lookup may fail and a name may move.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify


class UpstreamError(KafkaQuotasError):
    """Error for a broker that does not take a connection."""


async def connect(
    protocol: Callable[[], asyncio.Protocol], address: Address, *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> None:
    """Connect the protocol to a broker, trying each of the host's addresses.

    `timeout_s` is the time for all addresses together, TLS included.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(
                protocol, address.host, address.port, ssl=tls, server_hostname=None if tls is None else address.host
            )
    except TimeoutError as error:
        raise UpstreamError(f"{address} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise UpstreamError(f"{address}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise UpstreamError(f"{address}: not a name that can be looked up") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """The address of a broker, the time it has to answer, and the TLS contexts on both sides."""

    upstream: Address
    timeout_s: float
    """Time that the broker, and TLS with the client, may take."""
    client_tls: ssl.SSLContext | None = None
    """TLS context towards clients, None for plaintext."""
    upstream_tls: ssl.SSLContext | None = None
    """TLS context towards the broker, None for plaintext."""


Reroute: TypeAlias = Callable[[UpstreamConfig], Awaitable[UpstreamConfig | None]]
"""Records a broker that took no connection, and returns how to reach another, None if there is none."""


async def connect_any(
    protocol: Callable[[], asyncio.Protocol], config: UpstreamConfig, reroute: Reroute
) -> UpstreamConfig:
    """Connect the protocol to a broker or to one that serves in its place, and return how it was reached."""
    tried = set()
    while True:
        try:
            await connect(protocol, config.upstream, timeout_s=config.timeout_s, tls=config.upstream_tls)
        except UpstreamError:
            tried.add(config.upstream)
            # A bootstrap server may end after it was chosen. It got no byte of the client, so any other can take over.
            other = await reroute(config)
            if other is None or other.upstream in tried:
                raise
            config = other
        else:
            return config


LOOK_MS: Final = 1000
"""Shortest time between two looks at the files of a TLS context, which are looked at when a connection comes."""


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
            event = "changed certificates can't be used; the earlier ones stay in use"
            self._notify(LogEvent.failure(event, error, files=names))
        else:
            self._notify(LogEvent.of("certificates read again", files=names))

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return the time of change (ns), size and inode of each file, None if it is missing."""
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            with contextlib.suppress(OSError):
                state = file.stat()
                found.append((state.st_mtime_ns, state.st_size, state.st_ino))
                continue
            found.append(None)
        return found


def reloading_context(
    properties: Mapping[str, str] | None, *, is_server: bool, clock: Clock, notify: Notify
) -> ReloadingTlsContext | None:
    """Return the TLS context that follows the files of these properties, None without properties."""
    if properties is None:
        return None
    from kafka_quotas.stores.security.tls import (  # noqa: PLC0415 - only listeners with TLS need it
        STORE_LOCATIONS,
        server_tls_context,
        tls_context,
    )

    make: Callable[[], ssl.SSLContext] = partial(server_tls_context if is_server else tls_context, properties)
    files = [Path(properties[name]) for name in STORE_LOCATIONS if properties.get(name)]
    return ReloadingTlsContext(make, files, clock=clock, notify=notify)


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
        """Return the first broker that takes connections, or None.

        The one that comes first is tried alone. If it fails, or failed the last time, all are tried side by side.
        """
        ordered = self.preferred(addresses)
        # Those that failed some time ago are tried again in the background.
        now_s = asyncio.get_running_loop().time()
        for address in ordered:
            result = self._results.get(address)
            if result is not None and not result.answers and now_s - result.at_s > RECHECK_S:
                self._attempt(address, result)
        if ordered and not self._is_failing(ordered[0]):
            first, *ordered = ordered
            if await self.answers(first, kept_s=kept_s):
                return first
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


OpenListener: TypeAlias = Callable[[Route], int]
"""Opens a listener for a route and returns its port; raises `ListenError` if it can't."""


class RouteChange(Enum):
    """A change of a route that others hear of."""

    NAMED = "broker named"
    """The node id of a bootstrap server is known."""
    MOVED = "broker moved"
    LOCATED = "broker found"
    """The address of an announced broker is known."""


class BrokerRegistry:
    """The routes of one listener by node id.

    Args:
        changed: Takes each change of a route, with the node id that the route had before.
        owner: Node id of the broker that the bootstrap listener belongs to, None for no broker.
    """

    def __init__(
        self,
        bootstraps: Sequence[Route],
        *,
        open_listener: OpenListener,
        changed: Callable[[Route, RouteChange, NodeId], None],
        owner: int | None = None,
    ) -> None:
        self.bootstraps = tuple(bootstraps)
        self._servers = tuple((route, route.upstream) for route in bootstraps)
        self._open_listener = open_listener
        self._changed = changed
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
        """
        if node_id not in self._routes:
            self._routes[node_id] = self._open(node_id, self.bootstraps[0].upstream, is_located=False)

    def route(self, node_id: int, address: Address) -> Route:
        """Return the route to the broker at this address, with its listener open."""
        for bootstrap, server in self._servers:
            if server == address:
                self.name(bootstrap, node_id)
        route = self._routes.get(node_id)
        if route is None:
            route = self._routes[node_id] = self._open(node_id, address, is_located=True)
        was_located, route.is_located = route.is_located, True
        if route.upstream != address:
            route.upstream = address
            self._changed(route, RouteChange.MOVED if was_located else RouteChange.LOCATED, node_id)
        return route

    def name(self, bootstrap: Route, node_id: int) -> None:
        """Record the broker of a bootstrap server, unless one is known already."""
        if not bootstrap.is_named:
            placeholder, bootstrap.node_id = bootstrap.node_id, node_id
            self._changed(bootstrap, RouteChange.NAMED, placeholder)

    def _open(self, node_id: int, address: Address, *, is_located: bool) -> Route:
        name = self.bootstraps[0].listener
        route = Route(node_id=node_id, port=0, upstream=address, is_located=is_located, listener=name)
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
        with contextlib.suppress(OSError, UnicodeError):
            found = await self._loop.getaddrinfo(address.host, address.port)
            return {str(address[0]).removeprefix("::ffff:") for _, _, _, _, address in found}
        return set()

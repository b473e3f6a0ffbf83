"""Which listener leads to which broker, and what the address behind a bootstrap address tells."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.core.virtual_loop import VirtualLoop, settled

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.proxy.brokers import (
    AGAIN_S,
    LOOK_MS,
    BootstrapAlias,
    BrokerRegistry,
    ReloadingTlsContext,
    RouteChange,
    is_same_endpoint,
)
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route
from kafka_quotas.enforcement.telemetry.log import LogEvent

FIRST = Address(host="broker-1", port=9092)
SECOND = Address(host="broker-2", port=9092)


THIRD = Address(host="elsewhere", port=1)


class Seen:
    """A directory and what it told."""

    def __init__(self, *servers: Address, node_id: NodeId = None, owner: int | None = None) -> None:
        self.opened: list[Route] = []
        self.named: list[tuple[NodeId, NodeId]] = []
        self.moved: list[Route] = []
        self.located: list[Route] = []
        names = [node_id, -1, -2]
        self.routes = BrokerRegistry(
            [Route(node_id=name, port=20_000, upstream=server) for name, server in zip(names, servers, strict=False)],
            open_listener=self._open,
            changed=self._changed,
            owner=owner,
        )

    def port(self, node_id: int, address: Address) -> int:
        return self.routes.route(node_id, address).port

    def _changed(self, route: Route, change: RouteChange, before: NodeId) -> None:
        if change is RouteChange.NAMED:
            self.named.append((route.node_id, before))
        else:
            (self.moved if change is RouteChange.MOVED else self.located).append(route)

    def _open(self, route: Route) -> int:
        assert route.node_id is not None
        self.opened.append(route)
        return 20_001 + route.node_id


def test_every_broker_gets_a_listener_of_its_own_whichever_is_met_first() -> None:
    one, other = Seen(FIRST), Seen(FIRST)
    ports = {node_id: one.port(node_id, address) for node_id, address in ((1, FIRST), (2, SECOND))}
    assert {node_id: other.port(node_id, address) for node_id, address in ((2, SECOND), (1, FIRST))} == ports
    assert ports == {1: 20_002, 2: 20_003}


def test_the_broker_behind_a_bootstrap_server_is_known_by_the_servers_address() -> None:
    seen = Seen(FIRST, SECOND)
    assert [route.is_named for route in seen.routes.bootstraps] == [False, False]
    seen.port(2, SECOND)
    assert seen.named == [(2, -1)]
    assert [route.node_id for route in seen.routes.bootstraps] == [None, 2]
    seen.port(1, FIRST)
    assert seen.named == [(2, -1), (1, None)]
    seen.port(3, FIRST)
    assert len(seen.named) == 2, "the first answer stays"


def test_a_broker_keeps_its_listener_when_it_moves() -> None:
    seen = Seen(FIRST)
    assert seen.port(2, SECOND) == 20_003
    assert seen.moved == []
    assert seen.port(2, THIRD) == 20_003
    assert seen.opened[0].upstream == THIRD
    assert seen.moved == seen.opened
    assert not seen.routes.bootstraps[0].is_named
    assert seen.routes.bootstraps[0].upstream == FIRST


def test_the_broker_behind_an_alias_is_known_later() -> None:
    seen = Seen(FIRST)
    seen.port(1, SECOND)
    (bootstrap,) = seen.routes.bootstraps
    seen.routes.name(bootstrap, 1)
    assert seen.named == [(1, None)]
    assert [(route.node_id, route.port) for route in seen.routes.routes] == [(1, 20_000), (1, 20_002)]
    seen.routes.name(bootstrap, 2)
    assert seen.named == [(1, None)], "the first answer stays"


def test_a_broker_that_the_bootstrap_listener_was_given_to_has_it_whatever_its_address() -> None:
    seen = Seen(FIRST, node_id=7, owner=7)
    assert seen.port(7, SECOND) == 20_000
    assert seen.port(8, FIRST) == 20_009
    assert seen.named == []


def test_an_announced_broker_is_behind_a_bootstrap_server_until_it_is_located() -> None:
    seen = Seen(FIRST)
    seen.routes.announce(2)
    (route,) = seen.opened
    assert (route.upstream, route.is_located) == (FIRST, False)
    assert seen.port(2, SECOND) == 20_003
    assert (route.upstream, route.is_located, seen.located, seen.moved) == (SECOND, True, [route], [])
    seen.port(2, THIRD)
    assert seen.moved == [route]
    assert len(seen.opened) == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"10.0.0.1"}, {"10.0.0.1"}, True),
        ({"10.0.0.1", "::1"}, {"10.0.0.1"}, True),
        ({"10.0.0.1"}, {"10.0.0.1", "::1"}, True),
        ({"10.0.0.1", "10.0.0.2"}, {"10.0.0.1"}, False),
        ({"10.0.0.1"}, {"10.0.0.2"}, False),
        ({"::1"}, {"10.0.0.1"}, False),
        (set(), {"10.0.0.1"}, False),
        ({"10.0.0.1"}, set(), False),
    ],
)
def test_two_names_stand_for_one_place(ours: set[str], theirs: set[str], same: bool) -> None:
    assert is_same_endpoint(ours, theirs) is same


@pytest.mark.parametrize(
    ("host", "node_id"),
    [
        ("broker-7.kafka.example", 7),
        ("BROKER-12.Kafka.Example", 12),
        ("broker-.kafka.example", None),
        ("broker-x.kafka.example", None),
        ("kafka.example", None),
        ("broker-7.kafka.example.org", None),
        ("broker-99999999999.kafka.example", None),
    ],
)
def test_names_stand_for_brokers(host: str, node_id: int | None) -> None:
    settings = ListenerSettings(upstreams=(FIRST,), listen=SECOND, host_pattern="broker-$(nodeId).kafka.example")
    assert settings.node_of(host) == node_id
    if node_id is not None:
        assert settings.broker_host(node_id) == host.lower()


class Names(VirtualLoop):
    """An event loop with names of its own.

    A name that has no address can't be looked up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, str] = {}
        self.lookups = 0

    async def getaddrinfo(self, host, port, **_):
        self.lookups += 1
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], port))]


def test_a_lookup_that_failed_is_made_again_after_a_while() -> None:
    async def ask(loop: Names) -> tuple[list[str], int]:
        said: list[str] = []
        place = BootstrapAlias(FIRST, loop)
        place.ask(SECOND, lambda: said.append("early"))
        await settled()
        loop.addresses = {"broker-1": "10.0.0.1", "broker-2": "10.0.0.1"}
        lookups = loop.lookups
        place.ask(SECOND, lambda: said.append("at once"))
        await settled()
        again = loop.lookups - lookups
        loop.passed_s += AGAIN_S
        place.ask(SECOND, lambda: said.append("later"))
        await settled()
        place.close()
        return said, again

    with asyncio.Runner(loop_factory=Names) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Names)
        assert runner.run(ask(loop)) == (["later"], 0)


class Kept:
    """A keeper of one file, what was made of it, and what it said."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = VirtualClock(0)
        self.notices: list[LogEvent] = []
        self.made: list[ssl.SSLContext] = []
        file.write_text("first")
        self.keeper = ReloadingTlsContext(self._make, [file], clock=self.clock, notify=self.notices.append)

    def context(self, *, after_ms: int = LOOK_MS) -> ssl.SSLContext:
        self.clock.advance(after_ms)
        return self.keeper.context

    def _make(self) -> ssl.SSLContext:
        if not self.file.exists() or self.file.read_text() == "broken":
            raise UsageError("no certificate")
        self.made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return self.made[-1]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "server.pem")


def test_files_that_stay_are_read_once(kept: Kept) -> None:
    assert [kept.context() for _ in range(5)] == kept.made * 5
    assert kept.notices == []


def test_a_change_is_seen_after_a_second_at_most(kept: Kept) -> None:
    kept.file.write_text("the second")
    assert kept.context(after_ms=LOOK_MS - 1) is kept.made[0]
    assert kept.context(after_ms=1) is kept.made[1]
    assert [notice.event for notice in kept.notices] == ["certificates read again"]


def test_what_cannot_be_used_is_said_once_and_the_old_one_stays(kept: Kept) -> None:
    kept.file.write_text("broken")
    assert [kept.context() for _ in range(3)] == kept.made * 3
    assert len(kept.notices) == 1
    kept.file.unlink()
    assert kept.context() is kept.made[0]
    assert len(kept.notices) == 2
    kept.file.write_text("the third")
    assert kept.context() is kept.made[1]


def test_what_cannot_be_used_at_the_start_is_an_error(tmp_path: Path) -> None:
    def make() -> ssl.SSLContext:
        raise UsageError("no key")

    with pytest.raises(UsageError, match="no key"):
        ReloadingTlsContext(make, [tmp_path / "missing"], clock=VirtualClock(0), notify=lambda _: None)

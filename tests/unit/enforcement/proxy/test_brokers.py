"""Which listener leads to which broker, and what the address behind a bootstrap address tells."""

import asyncio
import socket

import pytest

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.proxy.brokers import (
    AGAIN_S,
    BootstrapAlias,
    BrokerRegistry,
    RouteChange,
    is_same_endpoint,
)
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route

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


class Names(asyncio.SelectorEventLoop):
    """An event loop with names and a time of its own.

    A name that has no address can't be looked up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, str] = {}
        self.passed_s = 0.0
        self.lookups = 0

    def time(self) -> float:
        return super().time() + self.passed_s

    async def getaddrinfo(self, host, port, **_):
        self.lookups += 1
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], port))]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


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

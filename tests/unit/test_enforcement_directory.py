"""Which listener leads to which broker, and what the address behind a bootstrap address tells."""

import pytest

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.broker_directory import BrokerDirectory, Route
from kafka_quotas.enforcement.listener_settings import ListenerSettings
from kafka_quotas.enforcement.policy import NodeId
from kafka_quotas.enforcement.same_place import is_same_place

FIRST = Address(host="broker-1", port=9092)
SECOND = Address(host="broker-2", port=9092)


class Seen:
    """A directory and what it told."""

    def __init__(self, *, node_id: NodeId = None, is_shared: bool = True) -> None:
        self.opened: list[Route] = []
        self.named: list[tuple[NodeId, NodeId]] = []
        self.moved: list[Route] = []
        self.routes = BrokerDirectory(
            Route(node_id=node_id, port=20_000, upstream=FIRST),
            open_listener=self._open,
            on_named=lambda route, placeholder: self.named.append((route.node_id, placeholder)),
            on_moved=self.moved.append,
            is_shared=is_shared,
        )

    def port(self, node_id: int, address: Address) -> int:
        return self.routes.route(node_id, address).port

    def _open(self, route: Route) -> int:
        self.opened.append(route)
        return 20_000 + len(self.opened)


def test_the_bootstrap_listener_becomes_that_of_the_node_with_the_upstreams_address() -> None:
    seen = Seen(node_id=-1)
    assert seen.port(1, FIRST) == 20_000
    assert seen.named == [(1, -1)]
    assert seen.opened == []
    assert [route.node_id for route in seen.routes.routes] == [1]
    assert seen.routes.is_named


def test_every_other_broker_gets_a_listener_and_keeps_it_when_it_moves() -> None:
    seen = Seen()
    assert seen.port(2, SECOND) == 20_001
    assert seen.moved == []
    assert seen.port(2, Address(host="elsewhere", port=1)) == 20_001
    assert seen.opened[0].upstream == Address(host="elsewhere", port=1)
    assert seen.moved == seen.opened
    assert not seen.routes.is_named


def test_a_second_node_at_the_upstreams_address_gets_a_listener_of_its_own() -> None:
    seen = Seen()
    assert seen.port(1, FIRST) == 20_000
    assert seen.port(2, FIRST) == 20_001
    assert seen.port(1, SECOND) == 20_000
    assert [route.node_id for route in seen.moved] == [1]


def test_the_broker_behind_an_alias_is_known_later_and_keeps_the_listener_it_got() -> None:
    seen = Seen()
    assert seen.port(1, SECOND) == 20_001
    seen.routes.name(1)
    assert seen.named == [(1, None)]
    assert seen.port(1, SECOND) == 20_001
    assert [(route.node_id, route.port) for route in seen.routes.routes] == [(1, 20_000), (1, 20_001)]
    seen.routes.name(2)
    assert seen.named == [(1, None)], "the first answer stays"


def test_a_broker_whose_id_was_given_has_the_bootstrap_listener_whatever_its_address() -> None:
    seen = Seen(node_id=7)
    assert seen.routes.is_named
    assert seen.port(7, SECOND) == 20_000
    assert seen.port(8, FIRST) == 20_001
    assert seen.named == []


def test_brokers_with_names_of_their_own_get_listeners_of_their_own() -> None:
    seen = Seen(is_shared=False)
    assert seen.port(1, FIRST) == 20_001
    assert seen.named == [(1, None)]


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
    assert is_same_place(ours, theirs) is same


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
    settings = ListenerSettings(upstream=FIRST, listen=SECOND, host_pattern="broker-$(nodeId).kafka.example")
    assert settings.node_of(host) == node_id
    if node_id is not None:
        assert settings.broker_host(node_id) == host.lower()

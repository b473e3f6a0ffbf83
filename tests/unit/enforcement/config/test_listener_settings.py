"""Ports of brokers by node id: the same wherever and in whatever order they are asked for."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import (
    MAX_ADDRESSES,
    Address,
    BrokerAddress,
    ListenError,
    parse_addresses,
    parse_broker_addresses,
)
from kafka_quotas.enforcement.config.listener_settings import BrokerPorts, ListenerSettings, ports_of

UPSTREAM = (Address(host="broker-1", port=9092),)


def listener(
    port: int,
    *,
    name: str = "main",
    host: str = "127.0.0.1",
    ports: tuple[int, int] | None = None,
    addresses: str = "",
    upstreams: tuple[Address, ...] = UPSTREAM,
    pattern: str | None = None,
    is_tls: bool = False,
) -> ListenerSettings:
    return ListenerSettings(
        name=name,
        upstreams=upstreams,
        listen=Address(host=host, port=port),
        port_range=ports,
        broker_addresses=parse_broker_addresses([addresses]),
        host_pattern=pattern,
        security_protocol="SSL" if is_tls else "PLAINTEXT",
    )


def test_a_broker_has_the_first_port_plus_its_node_id() -> None:
    (behind,) = ports_of([listener(9192)])
    assert [behind.port(node_id) for node_id in (0, 1, 1001)] == [9193, 9194, 10_194]
    (ranged,) = ports_of([listener(9192, ports=(20_000, 20_099))])
    assert [ranged.port(node_id) for node_id in (99, 0)] == [20_099, 20_000]
    (free,) = ports_of([listener(0)])
    assert free.port(1) == 0


@pytest.mark.parametrize("node_id", [100, 1001, 2**31 - 1])
def test_a_range_that_is_too_small_for_a_node_id_is_named(node_id: int) -> None:
    (ranged,) = ports_of([listener(9192, ports=(20_000, 20_099))])
    with pytest.raises(ListenError) as refused:
        ranged.port(node_id)
    assert f"broker {node_id} has no port: 20000 + {node_id} is {20_000 + node_id}" in refused.value.message
    assert "the last port is 20099" in refused.value.message
    assert f"--broker-address {node_id}=PORT" in str(refused.value.hint)


def test_an_address_that_is_given_beats_the_range() -> None:
    (ports,) = ports_of([listener(9192, ports=(20_000, 20_099), addresses="1001-1099=21001, 3=kafka-3.example:443")])
    assert [ports.port(node_id) for node_id in (1001, 1099, 3, 4)] == [21_001, 21_099, 443, 20_004]
    assert ports.addresses == (
        BrokerAddress(first=1001, last=1099, port=21_001),
        BrokerAddress(first=3, last=3, host="kafka-3.example", port=443),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "not an address of a broker: '1'"),
        ("1=", "not an address of a broker"),
        ("x=20001", "not an address of a broker"),
        ("5-1=20001", "not an address of a broker"),
        ("1=0", "not a host:port"),
        ("1=65536", "not a host:port"),
        ("1-100=65500", "not an address of a broker"),
        ("9999999999=1", "not an address of a broker"),
        ("1=20001,1-3=20010", "broker 1 is given two addresses"),
        (f"1-{MAX_ADDRESSES + 1}=20001", f"more than {MAX_ADDRESSES} brokers"),
    ],
)
def test_what_is_no_address_of_a_broker_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_broker_addresses([text])
    assert said in refused.value.message


def test_several_listeners_never_share_a_port() -> None:
    main, partners = ports_of([listener(9192), listener(9300, name="partners")])
    assert (main.first, main.last, partners.first) == (9193, 9299, 9301)
    with pytest.raises(ListenError):
        main.port(200)
    ranges = [listener(9192, ports=(20_000, 20_099)), listener(9193, name="partners", ports=(20_050, 20_149))]
    with pytest.raises(UsageError, match="main and partners give brokers the same ports: 20050-20099"):
        ports_of(ranges)
    with pytest.raises(UsageError, match="main has no ports for brokers between 9192"):
        ports_of([listener(9192), listener(9193, name="partners")])
    with pytest.raises(UsageError, match="main has no ports"):
        ports_of([listener(9192, host="0.0.0.0"), listener(9193, name="partners")])
    assert ports_of([listener(9192, ports=(20_000, 20_099)), listener(9193, name="partners")])
    assert ports_of([listener(9192, host="127.0.0.2"), listener(9193, name="partners")])


def test_the_bootstrap_port_may_be_given_to_a_broker_that_is_alone_behind_it() -> None:
    assert listener(9192, addresses="7=9192").bootstrap_owner == 7
    assert listener(9192, addresses="7-9=9190").bootstrap_owner == 9
    assert listener(9192, addresses="7=9193").bootstrap_owner is None
    with pytest.raises(UsageError, match="leads to several upstreams"):
        ports_of([listener(9192, addresses="7=9192", upstreams=parse_addresses(["b1:1,b2:1"]))])


def test_brokers_that_share_a_port_are_told_apart_by_hosts() -> None:
    shared = {"pattern": "b$(nodeId).example", "is_tls": True}
    assert ports_of([listener(9192, addresses="7=special.example:9192", **shared)])
    for addresses in ("7=9192", "7=special.example:9193", "7-8=special.example:9192"):
        with pytest.raises(UsageError, match="broker 7 needs a host of its own and the port 9192"):
            ports_of([listener(9192, addresses=addresses, **shared)])


def test_upstreams_are_repeated_or_separated_by_commas() -> None:
    expected = tuple(Address(host=host, port=9092) for host in ("b1", "b2", "::1"))
    assert parse_addresses(["b1:9092, b2:9092", "[::1]:9092", "b1:9092"]) == expected
    for texts in (["b1:9092,"], [""], []):
        with pytest.raises(UsageError):
            parse_addresses(texts)


def test_free_ports_have_no_order_to_keep() -> None:
    assert BrokerPorts(first=0, last=0).port(70_000) == 0

"""How connections are counted: from their accept, for the broker they turn out to be for, and in all."""

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.control.server import MAX_CONNECTIONS
from kafka_quotas.enforcement.proxy.connection_quotas import SPARE_DESCRIPTORS, ConnectionQuotas, connections_for

WINDOW = QuotaWindow(samples=3, window_s=1)
PLACE = Address(host="h", port=1)


def settings(**limits: int) -> ListenerSettings:
    return ListenerSettings(upstreams=(PLACE,), listen=PLACE, **limits)


def test_a_connection_counts_before_anything_is_known_of_it() -> None:
    quotas, limited = ConnectionQuotas(WINDOW), settings(max_connections=2)
    port = quotas.broker(1)
    slots = [port.began("main", recorded=port) for _ in range(2)]
    assert port.is_full(limited)
    slots[0].end()
    slots[0].end()
    assert not port.is_full(limited), "and it ends once"
    port.began("main", recorded=port)
    assert port.is_full(limited)


def test_a_connection_counts_for_the_broker_that_it_turns_out_to_be_for() -> None:
    quotas, limited = ConnectionQuotas(WINDOW), settings(max_connections=1, max_connections_per_ip=1)
    port, other = quotas.broker(1), quotas.broker(2)
    slot = port.began("main", recorded=port)
    slot.came_from("10.0.0.7")
    assert port.is_refused(limited, "10.0.0.7")
    assert other.has_room_for(slot, limited)
    slot.move(other)
    assert not port.is_refused(limited, "10.0.0.7")
    assert (port.is_full(limited), other.is_full(limited)) == (False, True)
    slot.came_from("::ffff:10.0.0.7")
    assert other.is_refused(limited, "10.0.0.7")
    late = port.began("main", recorded=port)
    assert not other.has_room_for(late, limited)
    assert other.has_room_for(slot, limited), "it counts there already"
    slot.end()
    assert other.has_room_for(late, limited)
    assert not other.is_refused(limited, "10.0.0.7")


def test_addresses_and_listeners_are_counted_apart() -> None:
    port = ConnectionQuotas(WINDOW).broker(1)
    slots = [port.began("main", recorded=port) for _ in range(2)]
    for slot in slots:
        slot.came_from("10.0.0.1")
    assert port.is_refused(settings(max_connections_per_ip=2), "::ffff:10.0.0.1")
    assert not port.is_refused(settings(max_connections_per_ip=1), "10.0.0.2")
    assert not port.is_full(settings(max_connections=3))
    assert not port.is_full(settings())
    slots[0].end()
    assert not port.is_refused(settings(max_connections_per_ip=2), "10.0.0.1")
    slots[1].end()
    assert (port.by_ip, port.by_listener) == ({}, {}), "and nothing is left behind"


def test_all_brokers_together_have_no_more_connections_than_the_daemon_may() -> None:
    quotas = ConnectionQuotas(WINDOW, max_connections=3)
    brokers = [quotas.broker(node) for node in (1, 2, 3)]
    slots = [broker.began("main", recorded=broker) for broker in brokers]
    assert all(quotas.broker(node).is_full(settings()) for node in (1, 2, 4))
    slots[1].end()
    assert not quotas.broker(4).is_full(settings())


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1024, 412), (65_536, 32_668), (SPARE_DESCRIPTORS, 1), (0, 1)]
)
def test_there_may_be_as_many_as_the_limit_of_open_files_allows(descriptors: int, connections: int) -> None:
    assert connections_for(descriptors) == connections


def test_what_operators_may_connect_fits_into_the_spare_descriptors() -> None:
    assert MAX_CONNECTIONS < SPARE_DESCRIPTORS

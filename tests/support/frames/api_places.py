"""Which responses hold a throttle time or addresses of brokers, and the brokers that a response names."""

from typing import NamedTuple

from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses


def has_throttle(api_key: int, api_version: int) -> bool:
    """Whether responses of this version carry a throttle time at a known place."""
    api = API_TABLE.get(api_key)
    return api is not None and api.throttle_layout(api_version) is not None


def carries_addresses(api_key: int, api_version: int) -> bool:
    """Whether responses of this version can hold broker addresses."""
    api = API_TABLE.get(api_key)
    return api is not None and api.address_layout(api_version) is not None


class NamedBroker(NamedTuple):
    node_id: int
    host: str
    port: int


def broker_addresses(api_key: int, api_version: int, frame: bytes | bytearray) -> tuple[NamedBroker, ...]:
    """The brokers of a whole response in its order, as they are given to a translation."""
    named: list[NamedBroker] = []

    def noted(node_id: int, host: str, port: int) -> tuple[str, int]:
        named.append(NamedBroker(node_id, host, port))
        return host, port

    rewrite_addresses(api_key, api_version, frame, noted)
    return tuple(named)

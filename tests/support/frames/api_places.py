"""Which responses hold a throttle time or addresses of brokers, by the table of APIs."""

from kafka_quotas.wire.protocol.api_table import API_TABLE


def has_throttle(api_key: int, api_version: int) -> bool:
    """Whether responses of this version carry a throttle time at a known place."""
    api = API_TABLE.get(api_key)
    return api is not None and api.throttle_layout(api_version) is not None


def carries_addresses(api_key: int, api_version: int) -> bool:
    """Whether responses of this version can hold broker addresses."""
    api = API_TABLE.get(api_key)
    return api is not None and api.address_layout(api_version) is not None

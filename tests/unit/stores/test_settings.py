"""How long servers are waited for, by Kafka's own properties."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.settings import StoreSettings, Timeouts, timeouts

CALL, REQUEST = "default.api.timeout.ms", "request.timeout.ms"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, Timeouts(call_s=30)),
        ({CALL: "2000"}, Timeouts(call_s=2)),
        ({REQUEST: "1500"}, Timeouts(call_s=30, request_s=1.5)),
        ({REQUEST: "45000"}, Timeouts(call_s=45, request_s=45)),
        ({REQUEST: "500", CALL: " 500 "}, Timeouts(call_s=0.5, request_s=0.5)),
    ],
)
def test_kafkas_properties_count(properties: dict[str, str], expected: Timeouts) -> None:
    assert timeouts(StoreSettings(client_properties=properties)) == expected


@pytest.mark.parametrize(
    "properties",
    [{CALL: "0"}, {CALL: "-1"}, {REQUEST: "2s"}, {REQUEST: "2147483648"}, {REQUEST: "3000", CALL: "2000"}],
)
def test_a_time_that_cannot_be_meant_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"(default\.api|request)\.timeout\.ms"):
        timeouts(StoreSettings(client_properties=properties))

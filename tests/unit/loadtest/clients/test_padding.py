"""What records hold: nothing a codec gets smaller, unless compression is what is shown."""

import zlib
from dataclasses import replace

import pytest

from kafka_quotas.loadtest.clients.librdkafka import padding
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload

CLIENT = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.PRODUCE, topic="t")


@pytest.mark.parametrize(("compression", "smallest", "largest"), [("none", 10_000, 10_100), ("gzip", 0, 300)])
def test_records_shrink_only_where_they_are_to_be_compressed(compression: str, smallest: int, largest: int) -> None:
    content = padding(replace(CLIENT, compression=compression), size=10_001)

    assert len(content) == 10_001
    assert smallest < len(zlib.compress(content)) < largest

"""A batch of one record, read by two other implementations."""

import crc32c as fast
import pytest
from kafka.record import MemoryRecords

from kafka_quotas.wire.client.records import crc32c, single_record_batch


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8192, 70_000])
def test_another_library_reads_it(size: int) -> None:
    value = bytes(number % 251 for number in range(size))
    (batch,) = MemoryRecords(single_record_batch(value, now_ms=1_700_000_000_123))
    assert batch.validate_crc()
    (record,) = batch
    assert (record.offset, record.timestamp, record.key, record.value) == (0, 1_700_000_000_123, None, value)
    assert not record.headers


def test_the_checksum_is_that_of_the_processor() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for size in (0, 1, 1000):
        data = bytes(number * 7 % 256 for number in range(size))
        assert crc32c(data) == fast.crc32c(data)

"""Which bucket the events of a client at a broker lie in.

Invariant: the same on every machine, in every engine and for ever, because files were written by it: CRC-32 of user,
client-id and broker id, joined by zero bytes, modulo the number of buckets. SQL engines have the same `crc32`.
"""

from typing import Final
from zlib import crc32

DEFAULT_BUCKETS: Final = 16
"""Of 100 million events, 6 million lie in each: one is sorted in less than a gigabyte."""


def bucket_of(*, user: str, client_id: str, broker_id: int, buckets: int) -> int:
    """The bucket, from 0 to `buckets` - 1."""
    return crc32(f"{user}\0{client_id}\0{broker_id}".encode()) % buckets

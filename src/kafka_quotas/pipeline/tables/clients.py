"""The numbers of clients, by which files of events are sorted.

A number is the same on every machine and in every engine, with no table to ask. It has 63 bits: 12 of the cluster and
broker and 9 of the user, each the beginning of a digest, and 42 of a digest of all names. Clients of one broker are
neighbours therefore, and those of one user among them: what may share a quota is a range of numbers, and a range is a
few row groups of a sorted file. Two clients have the same number once in some 900 data folders where one user has
100,000 client-ids at one broker, and once in some 4,000 where a million clients of a broker have users of their own. An
ingest that meets such two refuses its files; elsewhere the names in each row distinguish clients.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

NAMES: Final = ("cluster", "broker_id", "user", "client_id")
"""Columns by which clients differ."""
_USER_BITS: Final = 9
_CLIENT_BITS: Final = 42
BROKER_SHIFT: Final = _USER_BITS + _CLIENT_BITS
"""Bits to the right of a broker's part of the number."""
USER_SHIFT: Final = _CLIENT_BITS
"""Bits to the right of a user's part of the number."""
_BROKER_BITS: Final = 63 - BROKER_SHIFT


def client_number(*, cluster: str, broker_id: int, user: str, client_id: str) -> int:
    """Return the number of a client at a broker, from 0 to 2^63 - 1."""
    broker = _bits(f"{cluster}\0{broker_id}", _BROKER_BITS)
    # the length says where one name ends and the next begins, for names may hold any character
    client = _bits(f"{cluster}\0{broker_id}\0{len(user)}\0{user}{client_id}", _CLIENT_BITS)
    return (broker << BROKER_SHIFT) | (_bits(user, _USER_BITS) << USER_SHIFT) | client


def shared_shift(columns: Iterable[str]) -> int:
    """Return in how many bits the numbers of clients may differ that share a bucket.

    The columns distinguish buckets: those of `buckets.proposal.partition_columns`.
    """
    known = set(columns)
    if "user" not in known:
        return BROKER_SHIFT
    return 0 if "client_id" in known else USER_SHIFT


@lru_cache(maxsize=1 << 16)
def _bits(text: str, count: int) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> (64 - count)

"""What the records of a load hold behind their stamp: bytes that can't be compressed, unless they are to be."""

import random
from typing import Final

from kafka_quotas.loadtest.plan import EntityLoad

_PATTERN: Final = 64
"""Bytes that repeat where a client compresses: then its requests are small, and their records large."""


def filler(entity: EntityLoad, *, size: int) -> bytes:
    """So many bytes, the same for every record of a client and different from those of others."""
    source = random.Random(entity.name.label)  # noqa: S311 - nobody is to be kept from guessing them
    if entity.compression == "none":
        return source.randbytes(size)
    return (source.randbytes(_PATTERN) * (size // _PATTERN + 1))[:size]

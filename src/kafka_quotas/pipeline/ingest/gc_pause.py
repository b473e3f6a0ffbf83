"""A pause of Python's cycle collector.

An ingest creates and drops millions of rows without cycles, and the search for cycles takes an eighth of its time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the cycle collector off for the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

"""Client libraries leave sockets of failed connections and TLS handshakes to the garbage collector, which warns."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaked_sockets_collected() -> Iterator[None]:
    """Collects, at the end, what a library left open, so that no later test is blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

"""Waiting for what other threads, processes and servers do."""

import threading
import time
from collections.abc import Callable

TIMEOUT_S = 240.0
"""What is waited for comes at once, and on a machine that has much else to do it takes its time."""


def await_true(condition: Callable[[], bool], what: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: It does not within `timeout_s`.
    """
    began_s = time.monotonic()
    pause = threading.Event()
    while not condition():
        waited_s = time.monotonic() - began_s
        assert waited_s < timeout_s, f"not within {timeout_s:g} s: {what}"
        pause.wait(interval_s(waited_s))


def interval_s(waited_s: float) -> float:
    """Return how long to wait until the next question: a server that is asked fifty times a second does little else."""
    return min(0.1, max(0.02, waited_s / 10))

"""Waiting for what other threads, processes and servers do."""

from collections.abc import Callable

from kafka_quotas.stores.polling import Polling

TIMEOUT_S = 240.0
"""What is waited for comes at once, and on a machine that has much else to do it takes its time."""
_INTERVAL_S = 0.02


def await_true(condition: Callable[[], bool], what: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: It does not within `timeout_s`.
    """
    assert Polling(_INTERVAL_S).until(condition, timeout_s=timeout_s), f"not within {timeout_s:g} s: {what}"

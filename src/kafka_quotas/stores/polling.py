"""Waiting by looking again and again, with the clock and the pause as arguments.

Invariants: the condition is tried at least once, also with no time left; `stop` ends every wait, from any thread, and
what the condition then finds closed is no error.
"""

import threading
import time
from collections.abc import Callable

from kafka_quotas.core.errors import StoreError


class Polling:
    """Tries a condition every `interval_s` seconds until it holds, the time is up, or `stop` is called.

    `pause(seconds)` waits and tells whether to stop; without one it is a wait on the event that `stop` sets.
    """

    def __init__(
        self,
        interval_s: float,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Nothing; every present and later wait ends at once."""
        self._stopped.set()

    def until(self, holds: Callable[[], bool], *, timeout_s: float) -> bool:
        """Whether the condition came to hold within `timeout_s` seconds; False also after `stop`."""
        deadline_s = self._monotonic_s() + timeout_s
        while not self._stopped.is_set():
            try:
                if holds():
                    return True
            except StoreError:
                if self._stopped.is_set():
                    return False
                raise
            left_s = deadline_s - self._monotonic_s()
            if left_s <= 0 or self._pause(min(self._interval_s, left_s)):
                return False
        return False

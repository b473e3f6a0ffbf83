"""Waiting by polling, with the clock and the pause as arguments.

Invariants: the condition is tried at least once, even with no time left. `stop` ends every wait, from any thread, and
an error of the condition after `stop` counts as its end.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kafka_quotas.core.errors import StoreError

Found = TypeVar("Found")


class Polling:
    """A wait that tries a condition at a fixed interval until it holds."""

    def __init__(
        self,
        interval_s: float,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """Prepare a wait that has not begun.

        `pause` waits for a number of seconds and returns whether to stop. With None it is a wait that `stop` ends.
        """
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait

    def check_open(self, url: str) -> None:
        """Raise a `StoreError` for a call of the store at `url` after `stop`."""
        if self._stopped.is_set():
            raise StoreError(f"the store was closed: {url}")

    def stop(self) -> None:
        """End every present and later wait at once."""
        self._stopped.set()

    def until(self, holds: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until the condition holds, and return whether it did within the timeout and before `stop`."""
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

    def first(self, find: Callable[[], Found | None], *, timeout_s: float) -> Found | None:
        """Return the first result of `find` that is not None, or None after `timeout_s` seconds or `stop`."""
        found: list[Found] = []

        def holds() -> bool:
            result = find()
            if result is not None:
                found.append(result)
            return bool(found)

        return found[0] if self.until(holds, timeout_s=timeout_s) else None

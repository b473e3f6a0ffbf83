"""Whether the target answers all through a run: asked every second, by a connection that no client shares.

A client that is throttled is silent for seconds as well, so its silence tells nothing; this one is not throttled.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError, StoreRefusedError

INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 8.0
"""An answer that takes longer is none: a target that is merely busy answers in time."""


class TargetWatch:
    """Asks in a thread of its own while it is entered. `ask` raises where nothing answers within `PATIENCE_S`.

    A target that refuses to answer whoever asks here is not asked again, and one that never answered (whoever
    administers may have no login there) is not taken for gone.
    """

    def __init__(self, ask: Callable[[], None], *, interval_s: float = INTERVAL_S) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="target-watch", daemon=True)
        self._start_s = 0.0
        self._silent_since_s: float | None = None
        self._outages: list[str] = []

    @property
    def findings(self) -> tuple[str, ...]:
        """When the target did not answer, one line for each time."""
        if self._silent_since_s is None:
            return tuple(self._outages)
        return (*self._outages, f"the target did not answer any more from {self._silent_since_s:.0f} s on")

    def __enter__(self) -> Self:
        self._start_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        has_answered = False
        while not self._stop.wait(self._interval_s):
            asked_s = time.monotonic() - self._start_s
            try:
                self._ask()
            except StoreRefusedError:
                return
            except KafkaQuotasError:
                if has_answered and self._silent_since_s is None:
                    self._silent_since_s = asked_s
                continue
            has_answered = True
            if self._silent_since_s is not None:
                back_s = time.monotonic() - self._start_s
                self._outages.append(f"the target did not answer from {self._silent_since_s:.0f} s to {back_s:.0f} s")
                self._silent_since_s = None

"""The watches of a run: one for the availability of its target, one for changes of its quotas.

The target is probed every second over a connection that no client shares. A throttled client has no responses for
seconds, so its silence does not show an outage; this connection is not throttled.

The quotas are read every few seconds, and once more at the end.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError, StoreRefusedError
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.run.quotas_in_force import InForce, differences, stored_in_force
from kafka_quotas.stores.store import Store

_INTERVAL_S: Final = 2.0


class QuotaWatch:
    """The watch for changes of quotas, over a connection of its own, while the context lasts.

    It reads the store in a thread of its own. `expected` has the quotas that apply to the clients when the load starts.
    """

    def __init__(self, opened: Callable[[], Store], *, names: Sequence[ClientName], expected: InForce) -> None:
        self._opened = opened
        self._names = names
        self._expected = expected
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="quota-watch", daemon=True)
        self._found: dict[str, float] = {}
        self._start_s = 0.0

    @property
    def findings(self) -> tuple[str, ...]:
        """The changes and when the watch noticed them, one line each, in order."""
        return tuple(f"{change}, noticed {at_s:.0f} s after the start" for change, at_s in self._found.items())

    def __enter__(self) -> Self:
        self._start_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        """Look until the end and once more then, and reopen a store that does not answer."""
        store: Store | None = None
        ending = False
        while not ending:
            ending = self._stop.wait(_INTERVAL_S)
            try:
                store = store or self._opened()
                self._look(store)
            except KafkaQuotasError:
                if store is not None:
                    store.close()
                store = None
        if store is not None:
            store.close()

    def _look(self, store: Store) -> None:
        for change in differences(self._expected, stored_in_force(store, self._names)):
            self._found.setdefault(change, time.monotonic() - self._start_s)


INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 8.0
"""Longest wait for an answer, within which even a busy target answers."""


class TargetWatch:
    """The watch for outages of the target, in a thread of its own, while the context lasts.

    `ask` raises if no broker answers within `PATIENCE_S`. The watch ends when the target refuses the request. It
    reports no outage before the first answer, because the administrator may have no login there.
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
        """The outages of the target, one line each."""
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

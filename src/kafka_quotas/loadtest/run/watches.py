"""The base of all watches of a run, and the watch for changes of its quotas.

The quotas are read every few seconds, and once more at the end.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.run.quotas_in_force import InForce, differences, stored_in_force
from kafka_quotas.stores.store import Store

_QUOTAS_EVERY_S: Final = 2.0


class RunWatch(ABC):
    """A watch in a thread of its own, while the context lasts."""

    def __init__(self, *, interval_s: float, start_s: float | None = None) -> None:
        self.interval_s = interval_s
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self.watch, daemon=True)
        self._start_s = start_s

    @abstractmethod
    def watch(self) -> None:
        """Look every `interval_s` seconds until `stop` is set."""

    def now_s(self) -> float:
        """Return the seconds since the given start, or else since the start of the watch."""
        return time.monotonic() - (self._start_s or 0.0)

    def __enter__(self) -> Self:
        self._start_s = time.monotonic() if self._start_s is None else self._start_s
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()


class QuotaWatch(RunWatch):
    """The watch for changes of quotas, over a connection of its own.

    `expected` has the quotas that apply to the clients when the load starts, and after it those that apply once the run
    itself has changed them.
    """

    def __init__(
        self, opened: Callable[[], Store], *, names: Sequence[ClientName], expected: Sequence[InForce]
    ) -> None:
        super().__init__(interval_s=_QUOTAS_EVERY_S)
        self._opened = opened
        self._names = names
        self._expected = expected
        self._found: dict[str, float] = {}

    @property
    def findings(self) -> tuple[str, ...]:
        """The changes and when the watch noticed them, one line each, in order."""
        return tuple(f"{change}, noticed {at_s:.0f} s after the start" for change, at_s in tuple(self._found.items()))

    def watch(self) -> None:
        """Look until the end and once more then, and reopen a store that does not answer."""
        store: Store | None = None
        ending = False
        while not ending:
            ending = self.stop.wait(self.interval_s)
            try:
                store = store or self._opened()
                found = stored_in_force(store, self._names)
                for change in min((differences(each, found) for each in self._expected), key=len):
                    self._found.setdefault(change, self.now_s())
            except KafkaQuotasError:
                if store is not None:
                    store.close()
                store = None
        if store is not None:
            store.close()

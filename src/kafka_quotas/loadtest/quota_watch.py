"""Whether anybody changes the quotas of a run while it lasts: read again every few seconds, and once at the end."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.plan import EntityName
from kafka_quotas.loadtest.quotas_in_force import InForce, differences, stored_in_force
from kafka_quotas.stores.store import Store

_INTERVAL_S: Final = 2.0


class QuotaWatch:
    """Watches in a thread of its own, over a connection of its own, while it is entered.

    `expected` is what holds for the clients when the load starts.
    """

    def __init__(self, opened: Callable[[], Store], *, names: Sequence[EntityName], expected: InForce) -> None:
        self._opened = opened
        self._names = names
        self._expected = expected
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="quota-watch", daemon=True)
        self._found: dict[str, float] = {}
        self._start_s = 0.0

    @property
    def findings(self) -> tuple[str, ...]:
        """What was changed and when it was noticed, one line each, in order."""
        return tuple(f"{change}, noticed {at_s:.0f} s after the start" for change, at_s in self._found.items())

    def __enter__(self) -> Self:
        self._start_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        """Nothing; looks until the end and once more then. A store that does not answer is asked again."""
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

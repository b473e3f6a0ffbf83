"""The rolling restart that a scenario makes of the daemons in front of its cluster while its load runs."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from types import TracebackType
from typing import Self


class DaemonRestarts:
    """The restarts of a run, one daemon after the other, in a thread that does nothing else.

    The next one begins when it is due and the one before listens again. The thread lives until the end of the context,
    for a process ends with the thread that started it (`testbed.child_process`).

    Args:
        times_s: When each is due, in seconds since the end of the warm-up.
        restarts: What restarts each daemon, called in turn. It returns when the daemon listens again.
        warmup_s: The length of the warm-up.
    """

    def __init__(self, times_s: Sequence[float], restarts: Sequence[Callable[[], None]], *, warmup_s: float) -> None:
        self._due = list(zip(sorted(times_s), cycle(restarts), strict=False))
        self._warmup_s = warmup_s
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._begun: list[Future[None]] = []

    def look(self, elapsed_s: float) -> None:
        """Begin every restart that is due at `elapsed_s` seconds since the start of the load.

        The error of an earlier restart passes through.
        """
        while self._due and elapsed_s >= self._warmup_s + self._due[0][0]:
            self._begun.append(self._thread.submit(self._due.pop(0)[1]))
        for each in self._begun:
            if each.done():
                each.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

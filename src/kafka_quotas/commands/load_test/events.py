"""What a run does during its load: quota steps, and restarts of daemons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import cycle

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest import QuotaStep

Changed = Callable[[Sequence[tuple[Entity, Mapping[str, float | None]]]], AbstractContextManager[None]]
"""Stores quotas for the time of a block."""


class Timetable(ExitStack):
    """What a run does during its load, each once when it is due, in seconds since the end of the warm-up."""

    def __init__(self, due: Iterable[tuple[float, Callable[[], object]]], *, warmup_s: float) -> None:
        super().__init__()
        self._due = sorted(due, key=lambda each: each[0])
        self._warmup_s = warmup_s

    def look(self, elapsed_s: float) -> None:
        """Do all that is due at `elapsed_s` seconds since the start of the load, with errors passed through."""
        while self._due and elapsed_s >= self._warmup_s + self._due[0][0]:
            self._due.pop(0)[1]()


class QuotaSteps(Timetable):
    """The quota steps of a run, which `changed` stores and which the end of the context restores."""

    def __init__(self, steps: Sequence[QuotaStep], *, warmup_s: float, changed: Changed) -> None:
        self.steps = sorted(steps, key=lambda step: step.at_s)
        super().__init__([(step.at_s, partial(self._make, step)) for step in self.steps], warmup_s=warmup_s)
        self._changed = changed

    def _make(self, step: QuotaStep) -> None:
        self.enter_context(self._changed([step.entry]))


class DaemonRestarts(Timetable):
    """The restarts of a run, one daemon after the other, in a thread that does nothing else.

    Each of `restarts` restarts a daemon and returns when it listens again. They take turns, and the next one begins
    when it is due and the one before is over. The thread lives until the end of the context, for a process ends with
    the thread that started it (`testbed.child_process`).
    """

    def __init__(self, times_s: Sequence[float], restarts: Sequence[Callable[[], None]], *, warmup_s: float) -> None:
        self._begun: list[Future[None]] = []
        turns = zip(sorted(times_s), cycle(restarts), strict=False)
        super().__init__([(at_s, partial(self._begin, restart)) for at_s, restart in turns], warmup_s=warmup_s)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.callback(self._thread.shutdown, cancel_futures=True)

    def look(self, elapsed_s: float) -> None:
        """Begin every restart that is due, and pass the error of an earlier one through."""
        super().look(elapsed_s)
        for each in self._begun:
            if each.done():
                each.result()

    def _begin(self, restart: Callable[[], None]) -> None:
        self._begun.append(self._thread.submit(restart))

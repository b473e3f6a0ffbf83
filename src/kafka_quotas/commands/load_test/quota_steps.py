"""The changes of quotas that a scenario makes while its load runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.scenario.model import QuotaStep

Changed = Callable[[Sequence[tuple[Entity, Mapping[str, float | None]]]], AbstractContextManager[None]]
"""Stores quotas for the time of a block."""


class QuotaSteps:
    """The quota steps of a run, each made once when it is due, and restored at the end of the context.

    `changed` stores quotas. Times of steps count from `warmup_s`.
    """

    def __init__(self, steps: Sequence[QuotaStep], *, warmup_s: float, changed: Changed) -> None:
        self.steps = sorted(steps, key=lambda step: step.at_s)
        """The steps in the order in which they are made."""
        self._due = list(self.steps)
        self._warmup_s = warmup_s
        self._changed = changed
        self._made = ExitStack()

    def look(self, elapsed_s: float) -> None:
        """Make every step that is due at `elapsed_s` seconds since the start of the load.

        Errors of the store pass through.
        """
        while self._due and elapsed_s >= self._warmup_s + self._due[0].at_s:
            quota = self._due.pop(0).quota
            self._made.enter_context(self._changed([(quota.entity, dict(quota.values))]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._made.__exit__(kind, error, trace)

"""The changes of quotas that a scenario makes while its load runs."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import cycle
from types import TracebackType
from typing import Self

from kafka_quotas.commands.insight.usage_source import UsageSource, read_usage
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.loadtest.results.result import BrokerSample
from kafka_quotas.loadtest.run.target_watch import RunWatch
from kafka_quotas.loadtest.scenario.model import QuotaStep

Changed = Callable[[Sequence[tuple[Entity, Mapping[str, float | None]]]], AbstractContextManager[None]]
"""Stores quotas for the time of a block."""


class QuotaSteps:
    """The quota steps of a run, each made once when it is due, and restored at the end of the context.

    `changed` stores quotas. Times of steps count from `warmup_s`.
    """

    def __init__(self, steps: Sequence[QuotaStep], *, warmup_s: float, changed: Changed) -> None:
        self.steps = sorted(steps, key=lambda step: step.at_s)
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


SCRAPE_EVERY_S = 5.0
MAX_SAMPLES = 200_000
"""Most samples to keep: 4 hours of 70 buckets."""


class BrokerMetrics(RunWatch):
    """The samples of all addresses during the context, none without addresses.

    Entering the context reads every address once: an error is better before a run than after it. Later failures become
    `warnings`.
    """

    def __init__(self, urls: tuple[str, ...], *, every_s: float = SCRAPE_EVERY_S) -> None:
        super().__init__(interval_s=every_s)
        self._source = UsageSource(metrics_urls=urls)
        self.samples: list[BrokerSample] = []
        self._failures = 0
        self._last_failure = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if the metrics could not be read at times."""
        if not self._failures:
            return ()
        return (f"the brokers' metrics could not be read {self._failures} times: {self._last_failure}",)

    def __enter__(self) -> Self:
        first = read_usage(self._source).usages if self._source.metrics_urls else ()
        super().__enter__()
        self._keep(first)
        return self

    def watch(self) -> None:
        """Read the metrics until the end, and count the failures."""
        while self._source.metrics_urls and not self.stop.wait(self.interval_s):
            try:
                self._keep(read_usage(self._source).usages)
            except KafkaQuotasError as error:
                self._failures += 1
                self._last_failure = error.message

    def _keep(self, usages: tuple[Usage, ...]) -> None:
        now_s = round(self.now_s(), 3)
        room = MAX_SAMPLES - len(self.samples)
        self.samples += [
            BrokerSample(
                t_s=now_s,
                broker=usage.broker,
                quota_key=usage.key,
                user=usage.user,
                client_id=usage.client_id,
                observed=usage.observed,
                throttle_ms=usage.throttle_ms,
            )
            for usage in usages[: max(room, 0)]
        ]

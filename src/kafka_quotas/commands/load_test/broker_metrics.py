"""The brokers' own metrics during a load test, read repeatedly in a thread of its own."""

import threading
import time
from types import TracebackType
from typing import Self

from kafka_quotas.commands.insight.usage_source import UsageSource, read_usage
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.loadtest.result.result import BrokerSample

SCRAPE_EVERY_S = 5.0
MAX_SAMPLES = 200_000
"""Most samples to keep: 4 hours of 70 buckets."""


class BrokerMetrics:
    """The samples of all addresses during the context, none without addresses.

    Entering the context reads every address once: an error is better before a run than after it. Later failures become
    `warnings`.

    Raises:
        KafkaQuotasError: An address can't be read.
        UsageError: An address is invalid.
    """

    def __init__(self, urls: tuple[str, ...], *, every_s: float = SCRAPE_EVERY_S) -> None:
        self._source = UsageSource(metrics_urls=urls)
        self._every_s = every_s
        self._samples: list[BrokerSample] = []
        self._failures = 0
        self._last_failure = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._scrape_on, daemon=True)
        self._start_s = 0.0

    @property
    def samples(self) -> tuple[BrokerSample, ...]:
        """The samples so far."""
        return tuple(self._samples)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if the metrics could not be read at times."""
        if not self._failures:
            return ()
        return (f"the brokers' metrics could not be read {self._failures} times: {self._last_failure}",)

    def __enter__(self) -> Self:
        self._start_s = time.monotonic()
        if self._source.metrics_urls:
            self._keep(read_usage(self._source).usages)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _scrape_on(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._keep(read_usage(self._source).usages)
            except KafkaQuotasError as error:
                self._failures += 1
                self._last_failure = error.message

    def _keep(self, usages: tuple[Usage, ...]) -> None:
        now_s = round(time.monotonic() - self._start_s, 3)
        room = MAX_SAMPLES - len(self._samples)
        self._samples += [
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

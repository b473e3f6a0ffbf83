"""The brokers' own metrics during a load test, read repeatedly in a thread of its own."""

from typing import Self

from kafka_quotas.commands.insight.usage_source import UsageSource, read_usage
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.loadtest.result.result import BrokerSample
from kafka_quotas.loadtest.run.watches import RunWatch

SCRAPE_EVERY_S = 5.0
MAX_SAMPLES = 200_000
"""Most samples to keep: 4 hours of 70 buckets."""


class BrokerMetrics(RunWatch):
    """The samples of all addresses during the context, none without addresses.

    Entering the context reads every address once: an error is better before a run than after it. Later failures become
    `warnings`.

    Raises:
        KafkaQuotasError: An address can't be read.
        UsageError: An address is invalid.
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

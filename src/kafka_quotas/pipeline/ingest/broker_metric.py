"""What brokers measured of each quota's use, out of scrapes, whatever the exporter called it."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from kafka_quotas.core.metric_names import MetricNames, usages_of
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.core.usage import Usage
from kafka_quotas.pipeline.ingest.metric_sample import TimedSample
from kafka_quotas.pipeline.ingest.rows import MetricRow

_TYPES = {each.key.name: each.value for each in QuotaType}
_RATES = {
    QuotaType.PRODUCE.value: "byte_rate",
    QuotaType.FETCH.value: "byte_rate",
    QuotaType.REQUEST.value: "request_time",
    QuotaType.CONTROLLER_MUTATION.value: "mutation_rate",
}


def metric_rows(
    samples: Iterable[TimedSample], *, names: MetricNames, broker: str, ts_ms: int, cluster: str, src_file: str
) -> Iterator[MetricRow]:
    """The quota metrics among the samples; `broker` and `ts_ms` count where a sample tells neither."""

    def taken_ms(timed: TimedSample) -> int:
        return ts_ms if timed.ts_ms is None else timed.ts_ms

    for at_ms, group in groupby(sorted(samples, key=taken_ms), key=taken_ms):
        for usage in usages_of((timed.sample for timed in group), names=names, broker=broker):
            for metric, value in _figures(usage):
                yield MetricRow(
                    ts_ms=at_ms,
                    cluster=cluster,
                    broker=usage.broker,
                    quota_type=_TYPES[usage.key],
                    user=usage.user,
                    client_id=usage.client_id,
                    metric=metric,
                    value=value,
                    src_file=src_file,
                )


def _figures(usage: Usage) -> Iterator[tuple[str, float]]:
    rate = _RATES[_TYPES[usage.key]]
    for metric, value in ((rate, usage.observed), ("throttle_time", usage.throttle_ms), (f"{rate}_limit", usage.limit)):
        if value is not None:
            yield metric, value

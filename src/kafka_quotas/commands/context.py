"""Whether what a context names answers: its store, its daemon, its metrics."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from kafka_quotas import stores
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.value_format import format_count


@dataclass(frozen=True, slots=True)
class Reached:
    """What one address of a context answered, and how long that took."""

    DOCUMENT: ClassVar = "context part address reached answer took_ms"
    context: str
    part: str
    """`store`, `control` or `prometheus`."""
    address: str
    reached: bool
    answer: str | None
    """What was read there, or else why nothing was."""
    took_ms: int
    hint: str | None = None


def try_parts(
    context: stores.Context, address: stores.StoreUrl, open_store: Callable[[], stores.Store]
) -> Iterator[Reached]:
    """Read the store, the status of the daemon and every address of metrics, and yield what each gave."""
    parts: list[tuple[str, str, Callable[[], str]]] = [("store", str(address), partial(_stored, open_store))]
    if context.control_path is not None:
        parts.append(("control", str(context.control_path), partial(_status, context.control_path)))
    parts += [("prometheus", url, partial(_metrics, url)) for url in context.prometheus]
    for part, where, read in parts:
        began_s, reached, hint = time.monotonic(), True, None
        try:
            answer = read()
        except KafkaQuotasError as error:
            reached, answer, hint = False, error.message, error.hint
        took_ms = round((time.monotonic() - began_s) * 1000)
        yield Reached(context.name, part, where, reached, answer, took_ms, hint)


def _stored(open_store: Callable[[], stores.Store]) -> str:
    with closing(open_store()) as store:
        return f"{format_count(len(stores.content_of(store)), 'entity')} with quotas"


def _status(control: Path) -> str:
    from kafka_quotas.enforcement import ask_status  # noqa: PLC0415 - few contexts have a daemon

    status = ask_status(control)
    return f"daemon {status.pid}, {format_count(len(status.buckets), 'bucket')}"


def _metrics(url: str) -> str:
    from kafka_quotas.commands.insight.usage import UsageSource, read_usage  # noqa: PLC0415 - as above

    return format_count(len(read_usage(UsageSource(metrics_urls=(url,))).usages), "bucket")

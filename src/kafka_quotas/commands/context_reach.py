"""Whether what a context names answers: its store, its daemon, and its metrics."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.stores.store import Store, content_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What one address of a context answered, and how long that took."""

    DOCUMENT: ClassVar = "context part address reached answer=text took_ms=whole_ms"
    context: str
    """The name of the context."""
    part: str
    """`store`, `control` or `prometheus`."""
    address: str
    answer: str | None
    """What was read there in words, None without an answer."""
    error: KafkaQuotasError | None
    took_ms: float

    @property
    def reached(self) -> bool:
        """Whether it answered."""
        return self.error is None

    @property
    def text(self) -> str | None:
        """What was read there, or else why nothing was."""
        return self.answer if self.error is None else self.error.message

    @property
    def whole_ms(self) -> int:
        """How long it took."""
        return round(self.took_ms)


def try_parts(
    open_store: Callable[[], Store],
    *,
    context: str,
    store_url: str,
    control: Path | None = None,
    metrics_urls: Sequence[str] = (),
    now_s: Callable[[], float],
) -> Iterator[Reached]:
    """Read the store, the status of the daemon and every address of metrics, and yield what each gave.

    The time that a part takes is bounded by its own time-outs.

    Args:
        open_store: Opens the store, which is closed here.
        context: The name of the context.
        store_url: The address of the store.
        control: The control socket of the daemon, if there is one.
        metrics_urls: The addresses of the metrics.
        now_s: A clock that never goes back.
    """
    parts: list[tuple[str, str, Callable[[], str]]] = [("store", store_url, partial(_stored, open_store))]
    if control is not None:
        parts.append(("control", str(control), partial(_status, control)))
    parts += [("prometheus", url, partial(_metrics, url)) for url in metrics_urls]
    for part, address, read in parts:
        began_s, answer, failure = now_s(), None, None
        try:
            answer = read()
        except KafkaQuotasError as error:
            failure = error
        took_ms = (now_s() - began_s) * 1000
        yield Reached(context=context, part=part, address=address, answer=answer, error=failure, took_ms=took_ms)


def _stored(open_store: Callable[[], Store]) -> str:
    with closing(open_store()) as store:
        return f"{format_count(len(content_of(store)), 'entity')} with quotas"


def _status(control: Path) -> str:
    from kafka_quotas.enforcement.control.client import ask_status  # noqa: PLC0415 - few contexts have a daemon

    status = ask_status(control)
    return f"daemon {status.pid}, {format_count(len(status.buckets), 'bucket')}"


def _metrics(url: str) -> str:
    from kafka_quotas.commands.insight.usage_source import UsageSource, read_usage  # noqa: PLC0415 - as above

    return format_count(len(read_usage(UsageSource(metrics_urls=(url,))).usages), "bucket")

"""Contexts: choose one, make, change or remove one, and try whether what it names answers.

Each raises a `UsageError` if there is no such context, or the file can't be read or written.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from kafka_quotas import stores
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.value_format import format_count


def set_context(
    path: Path,
    name: str,
    *,
    store_url: str | None = None,
    command_config: str | None = None,
    username: str | None = None,
    password: stores.Secret | None = None,
    properties: dict[str, str | stores.Secret] | None = None,
    control: str | None = None,
    prometheus: Sequence[str] = (),
    protected: bool | None = None,
) -> stores.Contexts:
    """Create a context or change its given settings, and return the contexts.

    A relative store of files is relative to the working folder.

    Raises:
        UsageError: A new context has no store, a user name and a password don't come together, a property is a
            secret, or a URL of metrics is none.
    """
    contexts = stores.read_contexts(path)
    known = {context.name: context for context in contexts.contexts}
    if name not in known and store_url is None:
        raise UsageError(f"a new context needs a store: {name}", hint="--store kafka://host:9092 for example")
    url = None if store_url is None else str(stores.parse_store_url(store_url))
    old = known.get(name) or stores.Context(
        name=stores.checked_context_name(name), folder=path.parent, store_url=url or ""
    )
    _refuse_secrets(properties or {})
    username, password = username or old.username, password or old.password
    if (username is None) != (password is None):
        raise UsageError(
            "a user name and a password go together",
            hint="--username NAME with --password-file or --password-command",
        )
    context = replace(
        old.logging_in(username, password),
        store_url=url or old.store_url,
        command_config=command_config or old.command_config,
        properties={**old.properties, **(properties or {})},
        control=control or old.control,
        prometheus=tuple(map(stores.checked_metrics_url, prometheus)) or old.prometheus,
        protected=old.protected if protected is None else protected,
    )
    changed = stores.with_context(contexts, context)
    stores.write_contexts(changed)
    return changed


def _refuse_secrets(properties: dict[str, str | stores.Secret]) -> None:
    for name, value in properties.items():
        if isinstance(value, str) and stores.is_secret_property(name):
            raise UsageError(
                f"{name} is a secret and is not written into a file of contexts",
                hint="the login has --password-file and --password-command; for the others put "
                f'"{name}" = {{ file = "..." }} into the file by hand',
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What one address of a context answered, and how long that took."""

    DOCUMENT: ClassVar = "context part address reached answer=text took_ms=whole_ms"
    context: str
    part: str
    """`store`, `control` or `prometheus`."""
    address: str
    answer: str | None
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
    open_store: Callable[[], stores.Store],
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

"""Metrics of a cluster's quotas without a daemon: limits, how close everybody is to them, and drift from files.

Contract: a thread looks at the store, then at all addresses of brokers' own metrics, then at the files, and a request
for metrics gets what was found last. A look that fails is a metric: limits and drift stay as they were found last, with
their age, and rates are left out, because those of a past minute would be taken for present ones. Only wrong usage at
the first look ends the process.

Names and bounds of series are the daemon's. A bucket's label `mode` is `broker`, and metrics that have such a label
already are not read, so that an exporter whose Prometheus server it reads itself does not count anything twice.

**Source:** KIP-1373 for the utilization, KIP-786 for the limits.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafka_quotas import enforcement
from kafka_quotas.commands.declarative.apply import DesiredState, declared_plan
from kafka_quotas.commands.insight.usage import UsageSource, metrics_address, read_usage, top_row
from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus, quota_statuses
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import DEFAULT_NAME, ENTITY_TYPES, EVERYTHING, USER, sanitize
from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.core.resolution.usage import Usage, share_used
from kafka_quotas.stores import QuotaEntry, Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

T = TypeVar("T")

_MODE: Final = "broker"
_TOKENS: Final = "kafka_server_controllermutation_tokens"
"""A metric of daemons: what brokers export of these buckets is a rate."""


class Look(NamedTuple):
    """One thing that is looked at: the store, an address of metrics, or the files."""

    kind: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.address}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookState:
    """How looks at one thing went."""

    error: KafkaQuotasError | None = None
    """Why the last one failed."""
    succeeded_ms: int | None = None
    """When one last went well."""
    failures: int = 0


_STORE: Final = Look("store")
_FILES: Final = Look("files")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the looks found, replaced as a whole so that a request sees one state."""

    looks: dict[Look, LookState]
    content: Content | None = None
    in_force: Sequence[StoredQuotaStatus] = ()
    """Quotas that clients get, with named clients first."""
    without_effect: Sequence[StoredQuotaStatus] = ()
    """Quotas that no client gets, in the same order."""
    drift: tuple[int, int] | None = None
    """Quotas other than declared, and those not declared."""
    buckets: Sequence["enforcement.BucketRow"] = ()
    buckets_left_out: int = 0


Report = Callable[[Look, LookState], None]
"""Takes how looks at one thing go, whenever that has changed."""


class QuotaExporter:
    """Looks at a cluster again and again, and makes metrics of what it found.

    Args:
        open_store: Opens the store anew for each look.
        source: The brokers' metrics, None for no rates.
        desired: The files to compare the store with, None for none.
        choice: The buckets and entities with series of their own.
        clock: The time of day.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        source: UsageSource | None,
        desired: DesiredState | None,
        choice: "enforcement.MetricsChoice",
        clock: Clock,
    ) -> None:
        self._open_store = open_store
        # A plan that would remove too much is drift like any other.
        self._desired = None if desired is None else replace(desired, prune_limit=100.0)
        self._choice = choice
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._store_url = ""
        self._static = False
        self._sources = {} if source is None else _sources(source)
        looks = [_STORE, *self._sources, *([] if desired is None else [_FILES])]
        self._found = _Found(looks=dict.fromkeys(looks, LookState()))

    def look(self, report: Report = lambda *_: None) -> None:
        """Look at everything once.

        Raises:
            UsageError: The usage is wrong, and nothing of the kind ever went well.
        """
        content = self._tried(_STORE, self._read_store, report)
        if content is not None:
            statuses = quota_statuses([QuotaEntry(*each) for each in content.items()], static=self._static)
            parts: tuple[list[StoredQuotaStatus], ...] = ([], [])
            for each in sorted(statuses, key=self._order):
                parts[each.status in (QuotaStatus.SHADOWED, QuotaStatus.IGNORED)].append(each)
            self._found = replace(self._found, content=content, in_force=parts[0], without_effect=parts[1])
        reading = {look: _started(partial(read_usage, source)) for look, source in self._sources.items()}
        readings = [self._tried(look, future.result, report) for look, future in reading.items()]
        limited = self._limited(usage for reading in readings if reading is not None for usage in reading.usages)
        rows = self._chosen(limited)
        self._found = replace(self._found, buckets=rows, buckets_left_out=len(limited) - len(rows))
        desired = self._desired
        plan = None if desired is None else self._tried(_FILES, lambda: declared_plan(self._content, desired), report)
        if plan is not None:
            undeclared = sum(len(each.keys) for each in plan.unmanaged)
            self._found = replace(self._found, drift=(len(plan.plan.changes), undeclared))

    def _tried(self, look: Look, work: Callable[[], T], report: Report) -> T | None:
        """Return the result of a look, None if it failed, and keep how it went."""
        before = self._found.looks[look]
        result: T | None = None
        try:
            result = work()
            after = replace(before, error=None, succeeded_ms=self._clock.now_ms())
        except Exception as error:  # a defect in one look ends no later one
            if isinstance(error, UsageError) and before == LookState():
                raise
            known = error if isinstance(error, KafkaQuotasError) else KafkaQuotasError(enforcement.error_text(error))
            after = replace(before, error=known, failures=before.failures + 1)
        self._found = replace(self._found, looks={**self._found.looks, look: after})
        if (before.error and before.error.message) != (after.error and after.error.message):
            report(look, after)
        return result

    def _read_store(self) -> Content:
        with closing(self._open_store()) as store:
            self._store_url, self._static = store.url, store.kind.is_static
            return dict(store.describe(EVERYTHING))

    def _content(self) -> Content:
        if self._found.content is None:
            raise KafkaQuotasError("nothing to compare with: the store was not read yet")
        return self._found.content

    def _limited(self, usages: Iterable[Usage]) -> Sequence["enforcement.BucketRow"]:
        """Return the buckets that have a limit, those that use most of it first."""
        resolver = EffectiveQuotas((self._found.content or {}).items(), static=self._static)
        rows = [
            enforcement.BucketRow(
                broker=usage.broker,
                quota=usage.key,
                user=usage.tags[0],
                client_id=usage.tags[1],
                limit=limit,
                observed=usage.observed,
                mode=_MODE,
                throttle_ms=usage.throttle_ms or 0.0,
            )
            for usage in usages
            if (limit := top_row(usage, resolver).limit) is not None
        ]
        # Two addresses may have metrics of one broker, and a series must not come twice.
        unique = {(row.broker, row.quota, row.user, row.client_id): row for row in rows}.values()
        return sorted(unique, key=lambda row: -(share_used(row.observed, row.limit) or 0.0))

    def _chosen(self, rows: Sequence["enforcement.BucketRow"]) -> Sequence["enforcement.BucketRow"]:
        """Return the buckets with series of their own."""
        users = {sanitize(user) for user in self._choice.users}
        named = [row for row in rows if row.user in users or row.client_id in self._choice.client_ids]
        named = named[: enforcement.MAX_NAMED]
        chosen = set(named)
        return [*named, *[row for row in rows if row not in chosen][: self._choice.top]]

    def _order(self, quota: StoredQuotaStatus) -> tuple[bool, object]:
        entity = quota.entity
        named = entity.user in self._choice.users or entity.client_id in self._choice.client_ids
        return (not named, entity.sort_key)

    def families(self) -> Iterator["Metric"]:
        """Yield every metric."""
        found, now_ms, family = self._found, self._clock.now_ms(), enforcement.metric_family
        for key in enforcement.QUOTA_FAMILIES:
            if any(row.quota == key for row in found.buckets):
                yield from (each for each in enforcement.bucket_families(found.buckets, key) if each.name != _TOKENS)
        state, limits = found.looks[_STORE], len(found.in_force)
        trouble = "not read yet" if state == LookState() else None if state.error is None else state.error.message
        age_ms = self._age_ms(state, now_ms)
        store = enforcement.StoreRow(url=self._store_url, revision="", age_ms=age_ms, trouble=trouble, limits=limits)
        yield from enforcement.record_families(store)
        figures = [("uptime_seconds", "Time since the start.", (now_ms - self._started_ms) / 1000)]
        if found.content is not None:
            figures += [("without_effect", "Stored quotas that no client gets.", len(found.without_effect))]
        if found.drift is not None:
            figures += [("drift", "Quotas other than declared in the files.", found.drift[0])]
            figures += [("drift_undeclared", "Stored quotas that the files don't declare.", found.drift[1])]
        for name, text, value in figures:
            yield family(f"kafka_quotas_{name}", text, [({}, value)])
        limits_left_out = 0
        for quotas, name, text in (
            (found.in_force, "limit", "Limit of an entity that clients get, in the unit of the key."),
            (found.without_effect, "limit_without_effect", "Limit of an entity that no client gets."),
        ):
            shown = quotas[: enforcement.MAX_ROWS]
            limits_left_out += len(quotas) - len(shown)
            yield family(f"kafka_quotas_entity_{name}", text, [(_labels(each), each.limit) for each in shown])
        left_out = [({"of": "buckets"}, found.buckets_left_out), ({"of": "entity_limits"}, limits_left_out)]
        text = "What has no series of its own, because there is more than --metrics-top or 1,000."
        yield family("kafka_quotas_left_out", text, left_out)
        looks = [({"look": look.kind, "address": look.address}, state) for look, state in found.looks.items()]
        good = [(tags, state.succeeded_ms is not None and state.error is None) for tags, state in looks]
        yield family("kafka_quotas_look_success", "1 if the last look went well.", good)
        ages = [(tags, self._age_ms(state, now_ms) / 1000) for tags, state in looks]
        text = "Time since a look last went well, or since the start."
        yield family("kafka_quotas_look_age_seconds", text, ages)
        failures = [(tags, state.failures) for tags, state in looks]
        yield family("kafka_quotas_look_failures", "Looks that failed.", failures, is_counter=True)
        build = {"version": version("kafka-quotas"), "program": "exporter"}
        yield family("kafka_quotas_build_info", "The version, as a label.", [(build, 1)])

    def _age_ms(self, state: LookState, now_ms: int) -> int:
        return max(0, now_ms - (self._started_ms if state.succeeded_ms is None else state.succeeded_ms))


def _sources(source: UsageSource) -> dict[Look, UsageSource]:
    """Return a source for each address, so that one that is away leaves the others."""
    found: dict[Look, UsageSource] = {}
    for url in source.metrics_urls:
        address = metrics_address(url)
        public = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()  # without a login
        found[Look("metrics", public)] = replace(source, metrics_urls=(url,), of_brokers_alone=True)
    return found


def _started(work: Callable[[], T]) -> "Future[T]":
    """Return the result of work in a thread that the end of the process does not wait for."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=run, name="look", daemon=True).start()
    return future


def _labels(quota: StoredQuotaStatus) -> dict[str, str]:
    """Return the labels of a stored quota: the entity in words, and its parts as buckets have them."""
    found = {"entity": str(quota.entity)}
    names = dict(quota.entity.parts)
    for kind in ENTITY_TYPES:
        name = names.get(kind, "")
        found[kind.replace("-", "_")] = DEFAULT_NAME if name is None else sanitize(name) if kind == USER else name
    return {**found, "key": quota.key}


def run_exporter(
    exporter: QuotaExporter,
    address: enforcement.Address,
    *,
    interval_s: float,
    report: Report,
    serving: Callable[[enforcement.Address], None],
    on_defect: Callable[[Exception], None],
) -> None:
    """Look every `interval_s` seconds and serve the metrics until SIGTERM or Ctrl-C.

    The looks are in a thread of their own, which the end does not wait for: a look at a lost broker takes long.

    Raises:
        ListenError: The address can't be listened on.
        UsageError: The usage is found to be wrong at the first look.
        KeyboardInterrupt: Ctrl-C.
    """
    stopped = threading.Event()

    async def metrics() -> bytes:
        return await enforcement.run_sliced(enforcement.exposition(exporter.families()))

    def look_again_and_again() -> None:
        exporter.look(report)
        while not stopped.wait(interval_s):
            exporter.look(report)

    async def serve() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        server = enforcement.HttpServer(address, routes=enforcement.probe_routes(metrics), on_defect=on_defect)
        port = await server.start()
        try:
            serving(enforcement.Address(host=address.host, port=port))
            looks = asyncio.wrap_future(_started(look_again_and_again))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((looks, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.set()
            await server.close()
        if looks.done():
            looks.result()

    asyncio.run(serve())

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
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafka_quotas import enforcement
from kafka_quotas.commands.declarative.apply import DeclaredPlan, DesiredState, declared_plan
from kafka_quotas.commands.declarative.groups import GroupPlace
from kafka_quotas.commands.insight.usage import UsageSource, metrics_address, read_usage, top_row
from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus, quota_statuses
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
_NOBODY: Final = (QuotaStatus.SHADOWED, QuotaStatus.IGNORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookState:
    """How looks at one thing went."""

    error: KafkaQuotasError | None = None
    """Why the last one failed."""
    succeeded_ms: int | None = None
    """When one last went well."""
    failures: int = 0


_STORE: Final = "store"
_FILES: Final = "files"
Report = Callable[[str, LookState], None]
"""Takes how looks at one thing go, whenever that has changed: the store, the files, or `metrics` at an address."""


class _Stored(NamedTuple):
    """What a store held when it was last read."""

    entries: Sequence[QuotaEntry]
    static: bool
    groups: GroupPlace


class QuotaExporter:
    """Looks at a store, which it opens anew each time, and makes metrics of what it found.

    Without a `source` there are no rates, and without a `desired` state no drift. `choice` names the buckets and
    entities with series of their own.
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
        self._sources = {} if source is None else _sources(source)
        looks = [_STORE, *self._sources, *([] if desired is None else [_FILES])]
        self._looks = dict.fromkeys(looks, LookState())
        self._stored: _Stored | None = None
        self._drift: tuple[int, int] | None = None
        self._limits = 0
        self._shown: tuple[Mapping[str, LookState], int, Sequence[Metric]] = ({**self._looks}, 0, ())
        """What a request gets: all that the last look found."""

    def look(self, report: Report = lambda *_: None) -> None:
        """Look at everything once.

        Raises:
            UsageError: The usage is wrong, and nothing of the kind ever went well.
        """
        self._stored = self._tried(_STORE, self._read_store, report) or self._stored
        reading = {look: _started(partial(read_usage, source)) for look, source in self._sources.items()}
        readings = [self._tried(look, future.result, report) for look, future in reading.items()]
        plan = None if self._desired is None else self._tried(_FILES, self._compared, report)
        if plan is not None:
            differing = len(plan.plan.changes) + len(plan.groups.changes)
            self._drift = differing, sum(len(each.keys) for each in plan.unmanaged)
        usages = (usage for reading in readings if reading is not None for usage in reading.usages)
        found = tuple(self._found_families(usages))
        self._shown = ({**self._looks}, self._limits, found)

    def _tried(self, look: str, work: Callable[[], T], report: Report) -> T | None:
        """Return the result of a look, None if it failed, and keep how it went."""
        before = self._looks[look]
        result: T | None = None
        try:
            result = work()
            after = replace(before, error=None, succeeded_ms=self._clock.now_ms())
        except Exception as error:  # a defect in one look ends no later one
            if isinstance(error, UsageError) and before == LookState():
                raise
            known = error if isinstance(error, KafkaQuotasError) else KafkaQuotasError(enforcement.error_text(error))
            after = replace(before, error=known, failures=before.failures + 1)
        self._looks[look] = after
        if (before.error and before.error.message) != (after.error and after.error.message):
            report(look, after)
        return result

    def _read_store(self) -> _Stored:
        with closing(self._open_store()) as store:
            policy = None if self._desired is None else self._desired.policy
            # The store is closed when the files are read.
            known = store.groups() if self._desired is not None and policy is None else None
            place = GroupPlace(store, policy, known)
            return _Stored(store.describe(EVERYTHING), store.kind.is_static, place)

    def _compared(self) -> DeclaredPlan:
        stored, desired = self._stored, self._desired
        if stored is None or desired is None:
            raise KafkaQuotasError("nothing to compare with: the store was not read yet")
        return declared_plan(lambda: dict(stored.entries), desired, place=stored.groups)

    def _found_families(self, usages: Iterable[Usage]) -> Iterator["Metric"]:
        """Yield the metrics of what was found, with named clients and those near their limits first."""
        family, stored = enforcement.metric_family, self._stored
        entries, static = ([], False) if stored is None else (stored.entries, stored.static)
        rows = self._limited(usages, EffectiveQuotas(entries, static=static))
        users = {sanitize(user) for user in self._choice.users}
        named = [row for row in rows if row.user in users or row.client_id in self._choice.client_ids]
        chosen = dict.fromkeys(named[: enforcement.MAX_NAMED])
        chosen |= dict.fromkeys([row for row in rows if row not in chosen][: self._choice.top])
        for key in enforcement.QUOTA_FAMILIES:
            if any(row.quota == key for row in chosen):
                yield from (each for each in enforcement.bucket_families(chosen, key) if each.name != _TOKENS)
        statuses = sorted(quota_statuses(entries, static=static), key=self._order)
        without_effect = [each for each in statuses if each.status in _NOBODY]
        in_force = [each for each in statuses if each.status not in _NOBODY]
        self._limits, limits_left_out = len(in_force), 0
        for quotas, name, text in (
            (in_force, "limit", "Limit of an entity that clients get, in the unit of the key."),
            (without_effect, "limit_without_effect", "Limit of an entity that no client gets."),
        ):
            shown = quotas[: enforcement.MAX_ROWS]
            limits_left_out += len(quotas) - len(shown)
            yield family(f"kafka_quotas_entity_{name}", text, [(_labels(each), each.limit) for each in shown])
        figures = []
        if self._stored is not None:
            figures += [("without_effect", "Stored quotas that no client gets.", len(without_effect))]
        if self._drift is not None:
            figures += [("drift", "Quotas, and parts of groups, other than declared in the files.", self._drift[0])]
            figures += [("drift_undeclared", "Stored quotas that the files don't declare.", self._drift[1])]
        for name, text, figure in figures:
            yield family(f"kafka_quotas_{name}", text, [({}, figure)])
        left_out = [({"of": "buckets"}, len(rows) - len(chosen)), ({"of": "entity_limits"}, limits_left_out)]
        text = "What has no series of its own, because there is more than --metrics-top or 1,000."
        yield family("kafka_quotas_left_out", text, left_out)

    def _limited(self, usages: Iterable[Usage], resolver: EffectiveQuotas) -> Sequence["enforcement.BucketRow"]:
        """Return the buckets that have a limit, those that use most of it first."""
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

    def _order(self, quota: StoredQuotaStatus) -> tuple[bool, object]:
        entity = quota.entity
        named = entity.user in self._choice.users or entity.client_id in self._choice.client_ids
        return (not named, entity.sort_key)

    def families(self) -> Iterator["Metric"]:
        """Yield every metric."""
        now_ms, family = self._clock.now_ms(), enforcement.metric_family
        states, limits, found = self._shown
        state = states[_STORE]
        trouble = "not read yet" if state == LookState() else None if state.error is None else state.error.message
        age_ms = self._age_ms(state, now_ms)
        store = enforcement.StoreRow(url="", revision="", age_ms=age_ms, trouble=trouble, limits=limits)
        yield from found
        yield from enforcement.record_families(store)
        named = [(*look.partition(" ")[::2], state) for look, state in states.items()]
        looks = [({"look": kind, "address": address}, state) for kind, address, state in named]
        good = [(tags, state.succeeded_ms is not None and state.error is None) for tags, state in looks]
        yield family("kafka_quotas_look_success", "1 if the last look went well.", good)
        ages = [(tags, self._age_ms(state, now_ms) / 1000) for tags, state in looks]
        yield family("kafka_quotas_look_age_seconds", "Time since a look last went well, or since the start.", ages)
        failures = [(tags, state.failures) for tags, state in looks]
        yield family("kafka_quotas_look_failures", "Looks that failed.", failures, is_counter=True)
        uptime_s = (now_ms - self._started_ms) / 1000
        yield family("kafka_quotas_uptime_seconds", "Time since the start.", [({}, uptime_s)])
        build = {"version": version("kafka-quotas"), "program": "exporter"}
        yield family("kafka_quotas_build_info", "The version, as a label.", [(build, 1)])

    def _age_ms(self, state: LookState, now_ms: int) -> int:
        return max(0, now_ms - (self._started_ms if state.succeeded_ms is None else state.succeeded_ms))


def _sources(source: UsageSource) -> dict[str, UsageSource]:
    """Return a source for each address, so that one that is away leaves the others."""
    found = {}
    for url in source.metrics_urls:
        address = metrics_address(url)
        public = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()  # without a login
        found[f"metrics {public}"] = replace(source, metrics_urls=(url,), of_brokers_alone=True)
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
    names = {kind: DEFAULT_NAME if name is None else name for kind, name in quota.entity.parts}
    if isinstance(quota.entity.user, str):
        names[USER] = sanitize(quota.entity.user)
    parts = {kind.replace("-", "_"): names.get(kind, "") for kind in ENTITY_TYPES}
    return {"entity": str(quota.entity), **parts, "key": quota.key}


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

    The looks are in threads of their own, which the end does not wait for: a look at a lost broker takes long.
    Wrong usage that the first one finds is raised.
    """
    enforcement.serve_until_stopped(
        enforcement.HttpServer(address, routes=enforcement.metric_routes(exporter.families), on_defect=on_defect),
        serving,
        lambda: asyncio.wrap_future(_started(partial(exporter.look, report))),
        every_s=interval_s,
    )

"""The quotas and rules of one process of a daemon: the store's content as it changes, and the files it reads again.

Invariants: what differs from what is in force is put in force, and nothing else; a file is checked as a whole before
any of it is used.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.metrics.rate import EwmaMeter
from kafka_quotas.core.model.quota_key import ResourceQuota
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.enforcement.config.client_policy import Mode, read_policy_file
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings, refuse_restart
from kafka_quotas.enforcement.config.settings import DaemonSettings, read_secrets
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, ConnectionRate
from kafka_quotas.enforcement.quotas.quota_registry import BucketId, QuotaRegistry, QuotaSource
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, Reloaded, StoreWatcher
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.stores.static import read_static_quotas
from kafka_quotas.stores.store import QuotaEntry

STATIC_SCHEME: Final = "static:"
Use: TypeAlias = Callable[[], object]
"""Puts in force what was read, and returns the number of changed limits if it has limits."""


class ProxyQuotas:
    """The quotas in force in one process of a daemon, and all that it measures under them."""

    def __init__(
        self,
        settings: DaemonSettings,
        connections: ConnectionQuotas,
        clock: Clock,
        *,
        notify: Notify,
        is_worker: bool = False,
    ) -> None:
        rules = settings.rules
        self.settings = settings
        self.connections = connections
        self.clock = clock
        self.notify = notify
        self.is_worker = is_worker
        self.counters = Counters()
        pool = BucketPool(settings.max_bucket_bytes, clock)
        self.registry = QuotaRegistry(
            rules.window, mutation_window=rules.mutation_window, policies=rules.policies, pool=pool
        )
        self.topics = TopicFilters(rules, counters=self.counters, notify=notify, clock=clock)
        self.throttle_stats = ThrottleStats(notify)
        self.on_listener: Callable[[int, ListenerSettings], None] = lambda *_: None
        """Called with the index of each listener whose file is read again, and its settings."""
        self.resolver = self.registry.resolver(())
        """The resolution of clients and addresses to what is in force."""
        self.changed = 0
        """The number of limits that the store has changed so far."""
        self.fleet_secrets: tuple[bytes, ...] = ()
        """The secrets of the fleet's reports, of which the first signs."""
        self._applied: str | None = None
        self._other_entries: tuple[QuotaEntry, ...] = ()

    def log_once(self, event: LogEvent) -> None:
        """Log an event that the workers of a daemon share with its main process, which logs it."""
        if not self.is_worker:
            self.notify(event)

    def apply(self, snapshot: ChangedSnapshot, url: str) -> None:
        """Put the changes of the content of the store at an address in force."""
        is_static = url.startswith(STATIC_SCHEME)
        of_groups = self.registry.replace_groups(snapshot.groups)  # the one part that may be refused
        self.connections.groups = self.registry.groups
        if snapshot.since is not None and snapshot.since == self._applied:
            changed = self.registry.alter(snapshot.changed, static=is_static)
        else:
            changed = self.registry.apply(snapshot.entries, static=is_static)
        self._applied = None  # should the rest fail, all of the next content is applied
        changed += of_groups
        self.changed += changed
        self.connections.apply(snapshot.other_entries)
        self._other_entries = snapshot.other_entries
        self.resolver = self.registry.resolver(snapshot.other_entries)
        self.topics.apply_store((entry.entity, entry.quotas) for entry in snapshot.other_entries)
        self._applied = snapshot.revision
        self.log_once(LogEvent.of("quotas applied", store=url, changed=changed, limits=self.registry.limit_count))

    def entries(self) -> list[QuotaEntry]:
        """Return the quotas in force, those of addresses, topics and brokers last."""
        return [*self.registry.entries(), *self._other_entries]

    def rates(self) -> Iterator[tuple[BucketId, ConnectionRate]]:
        """Yield the rates of connections, during which others may come and go."""
        for node_id, broker in list(self.connections.brokers.items()):
            for name, rate in list(broker.rates.items()):
                yield BucketId(node_id, Mode.KAFKA, ResourceQuota.CONNECTION, name), rate

    def meters(self) -> Iterator[tuple[BucketId, EwmaMeter, float]]:
        """Yield the meters of the topics with thresholds, and these, of all together under an empty name."""
        for node_id, broker in list(self.topics.thresholds.brokers.items()):
            for topic, meter, threshold in broker.topics.meters() if broker.is_active else ():
                yield BucketId(node_id, Mode.KAFKA, ResourceQuota.TOPIC, (topic, "")), meter, threshold

    @property
    def limits_nobody(self) -> bool:
        """Whether neither the store nor a file or an option limits any client."""
        settings = self.settings
        limits = self.entries() or self.registry.groups.tree
        return not limits and settings.policy_file is None and settings.connection_rate is None

    def use_files(self) -> tuple[tuple[str, ...], int]:
        """Read the files and put them in force, or raise and change nothing.

        Returns their paths and how many limits have changed.
        """
        readers = list(self._readers())
        results = [use() for use in [read(path) for path, read in readers]]
        return tuple(str(path) for path, _ in readers), sum(each for each in results if isinstance(each, int))

    async def reload(self, watcher: StoreWatcher, asked_by: str) -> Reloaded:
        """Read the files and the store again, and put their content in force, or raise and change nothing."""
        self.notify(LogEvent.of("reading quotas again", asked_by=asked_by))
        before = self.changed
        try:
            files, changed = self.use_files()
        except Exception as error:
            self.notify(LogEvent.failure("quotas can't be read again; the earlier ones stay in force", error))
            raise
        await watcher.reread()
        state = watcher.state
        return Reloaded(
            files=files,
            store=state.url,
            store_trouble=state.trouble,
            changed=changed + self.changed - before,
            limits=self.registry.limit_count,
        )

    def _readers(self) -> Iterator[tuple[Path, Callable[[Path], Use]]]:
        settings, registry = self.settings, self.registry
        readers: tuple[tuple[Path | None, Callable[[Path], Use]], ...] = (
            (settings.static_quotas, lambda path: partial(registry.apply, read_static_quotas(path), static=True)),
            (settings.policy_file, self._read_policy),
            (settings.cost_model, lambda path: partial(setattr, registry, "costs", read_cost_model(path))),
            (
                None if settings.fleet is None else settings.fleet.secret_file,
                lambda path: partial(setattr, self, "fleet_secrets", read_secrets(path)),
            ),
        )
        yield from ((path, read) for path, read in readers if path is not None)
        yield from ((path, partial(self._read_listener, number)) for number, path in settings.listener_paths.items())

    def _read_listener(self, number: int, path: Path) -> Use:
        settings = self.settings.read_listener(number)
        refuse_restart(self.settings.listeners[number], settings, path)
        return lambda: self.on_listener(number, settings)

    def _read_policy(self, path: Path) -> Use:
        file, thresholds = read_policy_file(path), self.topics.thresholds
        thresholds.check_file(file.thresholds)
        self.registry.with_groups(QuotaSource.FILE, file.groups.groups)

        def use() -> int:
            thresholds.apply_file(file.thresholds)
            changed = self.registry.replace(file)
            self.connections.groups = self.registry.groups
            event = LogEvent.of("policy applied", policy=str(path), entities=len(file.entities), changed=changed)
            self.log_once(event)
            return changed

        return use

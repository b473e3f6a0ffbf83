"""The quotas and rules that a daemon is given: the store's content as it changes, and the files it reads again.

Invariants: what differs from what is in force is put in force, and nothing else; a file is checked as a whole before
any of it is used.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from kafka_quotas.enforcement.config.client_policy import read_policy_file
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model
from kafka_quotas.enforcement.config.listener_file import refuse_restart
from kafka_quotas.enforcement.config.settings import DaemonSettings, read_secrets
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, ReloadedFile, Use
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.stores.static import read_static_quotas
from kafka_quotas.stores.store import QuotaEntry

STATIC_SCHEME: Final = "static:"


class QuotaContent:
    """The store's content and the files, as they are put in force in the parts of a daemon."""

    def __init__(
        self,
        settings: DaemonSettings,
        policy: QuotaRegistry,
        *,
        connections: ConnectionQuotas,
        topics: TopicFilters,
        notify: Notify,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._connections = connections
        self._topics = topics
        self._notify = notify
        self._applied: str | None = None
        self._other_entries: tuple[QuotaEntry, ...] = ()
        self.proxy: ProxyServer | None = None
        self.resolver = policy.resolver(())
        """The resolution of clients and addresses to what is in force."""
        self.changed = 0
        self.fleet_secrets: tuple[bytes, ...] = ()
        """The secrets of the fleet's reports, of which the first signs."""

    def apply(self, snapshot: ChangedSnapshot, url: str) -> None:
        """Put the changes of the content of the store at an address in force."""
        is_static = url.startswith(STATIC_SCHEME)
        if snapshot.since is not None and snapshot.since == self._applied:
            changed = self._policy.alter(snapshot.changed, static=is_static)
        else:
            changed = self._policy.apply(snapshot.entries, static=is_static)
        self._applied = None  # should the rest fail, all of the next content is applied
        self.changed += changed
        self._connections.ip_limits.apply(snapshot.other_entries)
        self._other_entries = snapshot.other_entries
        self.resolver = self._policy.resolver(snapshot.other_entries)
        self._topics.apply_store((entry.entity, entry.quotas) for entry in snapshot.other_entries)
        self._applied = snapshot.revision
        self._notify(LogEvent.of("quotas applied", store=url, changed=changed, limits=self._policy.limit_count))

    def entries(self) -> list[QuotaEntry]:
        """Return the quotas in force, those of addresses, topics and brokers last."""
        return [*self._policy.entries(), *self._other_entries]

    @property
    def limits_nobody(self) -> bool:
        """Whether neither the store nor a file or an option limits any client."""
        settings = self._settings
        return not self.entries() and settings.policy_file is None and settings.connection_rate is None

    def files(self) -> Iterator[ReloadedFile]:
        """Yield the files of quotas and rules that the start, and each reload, reads."""
        settings, policy = self._settings, self._policy
        readers: tuple[tuple[Path | None, Callable[[Path], Use]], ...] = (
            (settings.static_quotas, lambda path: partial(policy.apply, read_static_quotas(path), static=True)),
            (settings.policy_file, self._read_policy),
            (settings.cost_model, lambda path: partial(setattr, policy, "costs", read_cost_model(path))),
            (None if settings.fleet is None else settings.fleet.secret_file, self._read_secrets),
        )
        for path, read in readers:
            if path is not None:
                yield ReloadedFile(path=path, read=partial(read, path))
        for number, path in settings.listener_paths.items():
            yield ReloadedFile(path=path, read=partial(self._read_listener, number, path))

    def _read_listener(self, number: int, path: Path) -> Use:
        settings = self._settings.read_listener(number)
        refuse_restart(self._settings.listeners[number], settings, path)

        def use() -> None:
            if self.proxy is not None:
                self.proxy.listeners[number].follow(settings)

        return use

    def _read_policy(self, path: Path) -> Use:
        file = read_policy_file(path)
        self._topics.thresholds.check_file(file.thresholds)

        def use() -> int:
            self._topics.thresholds.apply_file(file.thresholds)
            changed = self._policy.replace(file)
            event = LogEvent.of("policy applied", policy=str(path), entities=len(file.entities), changed=changed)
            self._notify(event)
            return changed

        return use

    def _read_secrets(self, path: Path) -> Use:
        return partial(setattr, self, "fleet_secrets", read_secrets(path))

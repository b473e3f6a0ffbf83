"""The quotas of one process of a daemon, on a virtual clock and without listeners."""

from collections.abc import Mapping
from typing import Any

from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.client_policy import EntitySettings, PolicyFile
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.stores.store import QuotaEntry

START_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)
HERE = Address(host="127.0.0.1", port=1)


def proxy_quotas(
    limits: Mapping[Entity, Mapping[str, float]] | None = None,
    *,
    clock: VirtualClock | None = None,
    window: QuotaWindow = WINDOW,
    said: list[LogEvent] | None = None,
    entities: EntitySettings | None = None,
    broker_rate: float | None = None,
    rules: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ProxyQuotas:
    """The quotas of a daemon with these limits of clients and addresses, and these policies of entities."""
    listener = ListenerSettings(upstreams=(HERE,), listen=HERE)
    enforcement = EnforcementRules(window=window, mutation_window=window, **(rules or {}))
    made = ProxyQuotas(
        DaemonSettings(main=listener, listeners=(listener,), rules=enforcement, **settings),
        ConnectionQuotas(window, broker_rate=broker_rate),
        clock or VirtualClock(START_MS),
        notify=([] if said is None else said).append,
    )
    entries = [QuotaEntry(entity=entity, quotas=quotas) for entity, quotas in (limits or {}).items()]
    made.registry.apply(entries)
    made.connections.apply(entries)
    if entities is not None:
        made.registry.replace(PolicyFile(entities=entities))
    return made

"""The lines of the log that say with what a daemon starts: addresses, rules in force, and why it may do nothing."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

RETRY_S: Final = 2.0
"""Seconds between two attempts to reach a broker, as long as none was reached."""


def log_rules(settings: DaemonSettings, notify: Notify) -> None:
    """Log the daemon's own rules, and the files beside the store."""
    rules = settings.rules
    files = {
        "policy": settings.policy_file,
        "static_quotas": settings.static_quotas,
        "cost_model": settings.cost_model,
    }
    fields: dict[str, str | float] = {
        "mode": rules.mode.value,
        "scope": rules.scope.value,
        "fetch_over_quota": rules.fetch_over_quota.value,
        "on_violation": rules.on_violation.value,
        "throttle_style": rules.throttle_style.value,
        "window": f"{rules.window.samples}x{rules.window.window_s}s",
        **{name: str(path) for name, path in files.items() if path is not None},
    }
    notify(LogEvent(event="rules in force", fields=fields))


def log_listening(fields: Mapping[str, str | float], notify: Notify, *, enforces_nothing: bool) -> None:
    """Log that clients may connect, and warn if no quota and no rule limits any of them."""
    notify(LogEvent(event="daemon listening", fields=dict(fields)))
    if enforces_nothing:
        event = "no quota is in force, no client is limited; the first quota in the store counts at once"
        notify(LogEvent(event=event, level=LogLevel.WARNING, fields={"store": fields["store"]}))


async def log_reaching(upstreams: Iterable[Address], health: UpstreamHealth, notify: Notify) -> None:
    """Log the first broker that takes a connection, and before it a warning if none does at once."""
    addresses = list(upstreams)
    found = await health.first_answering(addresses)
    if found is None:
        event = "no broker takes connections; clients are closed until one does"
        fields: dict[str, str | float] = {"upstream": ",".join(map(str, addresses))}
        notify(LogEvent(event=event, level=LogLevel.WARNING, fields=fields))
    while found is None:
        await asyncio.sleep(RETRY_S)
        found = await health.first_answering(addresses)
    notify(LogEvent(event="a broker takes connections", fields={"upstream": str(found)}))

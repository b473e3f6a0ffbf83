"""The quotas that `--set-quota` of a flood sets for the time of its run."""

from collections.abc import Sequence

from kafka_quotas.commands.load_test import client_quotas
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_key import CONNECTION_CREATION_RATE, QuotaKey
from kafka_quotas.core.units import parse_quota_value
from kafka_quotas.loadtest.plan import EntityName
from kafka_quotas.loadtest.quotas_in_force import LOCAL_ADDRESS
from kafka_quotas.loadtest.scenario import ScenarioQuota


def typed_quotas(names: Sequence[EntityName], key: QuotaKey, texts: list[str] | None) -> tuple[ScenarioQuota, ...]:
    """A quota of this key for each client, from one text for all or one for each; none where there is no text."""
    return client_quotas(names, key, [_value(key, text) for text in texts or []])


def address_quota(text: str | None) -> tuple[ScenarioQuota, ...]:
    """The quota of the address that the clients come from; none where there is no text."""
    if text is None:
        return ()
    key = CONNECTION_CREATION_RATE
    return (ScenarioQuota(entity=Entity.of(ip=LOCAL_ADDRESS), values=((key.name, _value(key, text)),)),)


def _value(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if value <= 0:
        raise UsageError(f"--set-quota must be above 0, not {text!r}")
    return value

"""Which alterations of one call would let the thresholds of topics sum to more than a broker's total."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.threshold_key import is_threshold_entity
from kafka_quotas.core.threshold_settings import ThresholdSettings
from kafka_quotas.stores.store import Alteration, QuotaEntry


def excessive(
    alterations: Sequence[Alteration], stored: Callable[[], Iterable[QuotaEntry]]
) -> Mapping[Entity, InvalidQuotaError]:
    """Entity to the reason why its alteration is refused; empty where all of them together, or each in turn, fit.

    Together comes first, so that a total and the thresholds below it can be raised in any order in one call.
    `stored` is asked only where a threshold is among the alterations.
    """
    thresholds = [each for each in alterations if is_threshold_entity(each.entity)]
    if not thresholds:
        return {}
    content = {entry.entity: dict(entry.quotas) for entry in stored() if is_threshold_entity(entry.entity)}
    together = {entity: dict(quotas) for entity, quotas in content.items()}
    for alteration in thresholds:
        _change(together, alteration)
    if _refusal(together) is None:
        return {}
    refused: dict[Entity, InvalidQuotaError] = {}
    for alteration in thresholds:
        changed = {entity: dict(quotas) for entity, quotas in content.items()}
        _change(changed, alteration)
        refusal = _refusal(changed)
        if refusal is None:
            content = changed
        else:
            refused[alteration.entity] = refusal
    return refused


def _change(content: dict[Entity, dict[str, float]], alteration: Alteration) -> None:
    quotas = content.setdefault(alteration.entity, {})
    for key, value in alteration.changes.items():
        if value is None:
            quotas.pop(key, None)
        else:
            quotas[key] = value


def _refusal(content: Mapping[Entity, Mapping[str, float]]) -> InvalidQuotaError | None:
    try:
        ThresholdSettings.of(content.items())
    except InvalidQuotaError as error:
        return error
    return None

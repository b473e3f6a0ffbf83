"""Whether the quotas that a run sets take effect, found out before its load starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka_quotas.commands.quotas.quota_checks import findings_of_change
from kafka_quotas.core.changes.plan import planned
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuotas
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.run.quota_override import changes_to
from kafka_quotas.loadtest.run.quotas_in_force import LOCAL_ADDRESS
from kafka_quotas.stores.store import Store


def check_effect(
    store: Store,
    wanted: Iterable[tuple[Entity, Mapping[str, float]]],
    names: Sequence[ClientName],
    *,
    warn: Callable[[str], None],
) -> None:
    """Warn of each quota to set that no client gets.

    Raises:
        UsageError: No client of the run gets any of them, so that they can't be judged.
    """
    wanted = list(wanted)
    before = {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}
    plan = planned(before, changes_to(store, wanted))
    after = plan.applied_to(before)
    findings = [each for each in findings_of_change(before, after, plan.changes) if each.check == "shadowed"]
    if not _reaches(after, wanted, names):
        first = next(iter(findings), None)
        raise UsageError(
            "no client of the run gets any of the quotas that it sets"
            + ("" if first is None else f": {first.about}: {first.sentence}"),
            hint="name clients and quotas of the same users and client-ids" if first is None else first.remedy,
        )
    for each in findings:
        warn(f"{each.about}: {each.sentence}; {each.remedy}")


def _reaches(
    content: Mapping[Entity, Mapping[str, float]],
    wanted: Sequence[tuple[Entity, Mapping[str, float]]],
    names: Sequence[ClientName],
) -> bool:
    """Return whether any client gets any of the wanted quotas from the entity that they are set on."""
    set_here = {(entity, key) for entity, values in wanted for key in values}
    resolver = EffectiveQuotas(content.items())
    clients = (resolver.for_client(name.user or ANONYMOUS, name.client_id or "") for name in names)
    return any(
        (quota.entity, quota.key.name) in set_here
        for quotas in (*clients, (resolver.for_ip(LOCAL_ADDRESS),))
        for quota in quotas
    )

"""Exempt a user from every quota, whatever its clients call themselves and whatever defaults come later."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_quotas.commands.quotas.history import JournalWriter
from kafka_quotas.core.changes.plan import Content, PlannedChange, planned
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import KafkaQuotasError, StoreError
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.client import QuotaClient, SyntheticNames, outcomes_of_user
from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.stores.store import Store, alterations_of, content_of, errors_of

UNLIMITED: Mapping[str, float] = {key.name: float(key.unlimited) for key in QUOTA_KEYS.values() if not key.for_ip}
"""The explicit "no limit" of every key of users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemptResult:
    """The changes made, or with `dry_run` planned."""

    store_url: str
    user: str
    changes: tuple[PlannedChange, ...]
    checked: tuple[QuotaClient, ...]
    """The kinds of clients that were checked to be unlimited."""
    dry_run: bool


def exempt(
    store: Store, *, user: str, dry_run: bool = False, recorder: JournalWriter | None = None, for_ms: int | None = None
) -> ExemptResult:
    """Exempt any client of a user from every quota, and return the changes.

    The explicit unlimited is set on the user itself, which wins against every default of users, pairs and client-ids,
    and on those pairs of the user that hold a limit, which would win against it. The journal gets the outcome also
    where a part failed, and with `for_ms` schedules the revert.

    Raises:
        InvalidQuotaError: The name is invalid.
        KafkaQuotasError: A client would still be limited.
        StoreError: The store refused a part.
    """
    refused = our_refusals(Entity.of(user=user), UNLIMITED)
    if refused is not None:
        raise refused
    stored = content_of(store)
    plan = planned(stored, list(_changes(stored, user)))
    checked = _checked(user, plan.applied_to(stored))
    wanted = alterations_of(plan.changes)
    if wanted:
        failed = errors_of(store.alter(wanted, validate_only=dry_run))
        if recorder is not None and not dry_run:
            undo_at_ms = None if for_ms is None else recorder.clock.now_ms() + for_ms
            recorder.record_outcomes(store.url, plan.changes, failed, undo_at_ms=undo_at_ms)
        if failed:
            reasons = "; ".join(f"{entity}: {error}" for entity, error in failed.items())
            raise StoreError(
                f"{user} is not exempt, {len(failed)} of {len(wanted)} changes failed: {reasons}",
                hint="what was changed is in the journal: kafka-quotas revert last takes it back",
            )
        if not dry_run:
            checked = _checked(user, content_of(store))
    return ExemptResult(store_url=store.url, user=user, changes=plan.changes, checked=checked, dry_run=dry_run)


def _changes(stored: Content, user: str) -> Iterator[PlannedChange]:
    """Yield the changes that lift the user's own limits and those of its pairs, if they aren't unlimited."""
    own = Entity.of(user=user)
    pairs = [entity for entity in stored if entity.user == user and entity.client_id is not ABSENT]
    for entity in (own, *pairs):
        quotas = stored.get(entity, {})
        for key, unlimited in UNLIMITED.items():
            old = quotas.get(key)
            if old != unlimited and (entity == own or old is not None):
                yield PlannedChange(entity=entity, key=key, old=old, new=unlimited)


def _checked(user: str, content: Content) -> tuple[QuotaClient, ...]:
    """Check that every distinct kind of client of the user is unlimited, and return these kinds."""
    resolver, probes = EffectiveQuotas(content.items()), SyntheticNames(content)
    clients = tuple(outcomes_of_user(user, content))
    for client in clients:
        for quota in resolver.for_client(user, probes.text(client.client_id or "")):
            if quota.limit != UNLIMITED[quota.key.name]:
                why = "nothing is stored for it" if quota.entity is None else f"{quota.entity} wins"
                raise KafkaQuotasError(
                    f"{client} would not be exempt from {quota.key.name}: {why}",
                    hint="somebody else changes quotas as well; look with describe --effective, and try again",
                )
    return clients

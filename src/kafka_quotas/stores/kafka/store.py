"""The Kafka store: quotas in the cluster itself, through the admin protocol of any broker (2.6 and later).

Contract: our refusals come first, then the broker validates. All alterations of one entity are merged into one entry,
every entity has its own result, and accepted changes are read back until every broker shows them, or else the result
has a `NotVisibleError`. The user needs the ACLs DescribeConfigs and AlterConfigs on the cluster. Kafka has no
notification of changes, so a watch reads all quotas every half second.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kafka_quotas.core.errors import (
    KafkaQuotasError,
    NotVisibleError,
    StoreError,
    StoreUnreachableError,
    UnconfirmedError,
)
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING, QuotaFilter, filter_verdict_kraft
from kafka_quotas.stores.acceptance import checked
from kafka_quotas.stores.kafka.cluster_client import ALTER_ACL, DESCRIBE_ACL, ClusterClient
from kafka_quotas.stores.kafka.connection import LostAnswerError
from kafka_quotas.stores.kafka.messages import alter_outcomes, described_entries, request_batches
from kafka_quotas.stores.kafka.visibility import wait_until_visible
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings, timeouts
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot
from kafka_quotas.stores.url import StoreKind, StoreUrl
from kafka_quotas.wire.client.client_quotas import AlterQuotasRequest, DescribeQuotasRequest, EntityChanges

POLL_INTERVAL_S: Final = 0.5
_DEFAULTS = StoreSettings()


class KafkaStore:
    """Quotas in a Kafka cluster, connected at the first call."""

    kind = StoreKind.KAFKA

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        self.url = str(address)
        self._settings = settings
        self._connection = ClusterClient(address, settings=settings)
        self._timeout_s = timeouts(settings).call_s
        self._warned: set[str] = set()
        self._polling = polling or Polling(POLL_INTERVAL_S)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        self._polling.check_open(self.url)
        refused = filter_verdict_kraft(quota_filter)
        if refused is not None:
            raise refused
        response = self._connection.send(DescribeQuotasRequest(quota_filter=quota_filter))
        if response.error_code:
            raise self._connection.error(response.error_code, response.error_message, missing_acl=DESCRIBE_ACL)
        return described_entries(response)

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        self._polling.check_open(self.url)
        results = [
            checked(entry, kind=self.kind, describe=self.describe, allow_invalid=self._settings.allow_invalid)
            for entry in entries
        ]
        merged = _merged([entry for entry, result in zip(entries, results, strict=True) if result.error is None])
        outcomes = self._sent(merged, validate_only=validate_only)
        if self._settings.wait and not validate_only:
            done = [alteration for alteration in merged if outcomes[alteration.entity] is None]
            found = wait_until_visible(self._connection, done, timeout_s=self._timeout_s)
            not_visible = NotVisibleError(
                f"accepted, but not every broker of {self.url} shows it after {self._timeout_s:g} s",
                hint="describe it again; with --no-wait this is not checked",
            )
            outcomes |= dict.fromkeys(found.late, not_visible)
            if found.not_asked is not None and found.not_asked not in self._warned:
                self._warned.add(found.not_asked)
                self._settings.warn(
                    f"not read back from every broker: {found.not_asked}; the controller has the change"
                )
        return [replace(result, error=result.error or outcomes[result.entity]) for result in results]

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        def changed() -> Snapshot | None:
            entries = tuple(self.describe(EVERYTHING))
            revision = _revision(entries)
            return None if revision == since else Snapshot(revision=revision, entries=entries)

        return self._polling.first(changed, timeout_s=timeout_s)

    def close(self) -> None:
        self._polling.stop()
        self._connection.close()

    def _sent(self, alterations: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        """Send alterations, up to a lost connection, and return the error per entity, None for none."""
        outcomes: dict[Entity, KafkaQuotasError | None] = {}
        lost: KafkaQuotasError | None = None
        for batch in request_batches(alterations):
            if lost is None:
                try:
                    outcomes |= self._sent_batch(batch, validate_only=validate_only)
                    continue
                except LostAnswerError as error:
                    # The broker may have applied this batch, so it is unconfirmed, while later batches were not sent.
                    if validate_only:
                        raise
                    lost = StoreUnreachableError(error.message, hint=error.hint)
                    unconfirmed = UnconfirmedError(
                        f"not known whether it was changed: {error.message}",
                        hint="describe it once the brokers are back; the journal has the change as not confirmed",
                    )
                    outcomes |= dict.fromkeys((alteration.entity for alteration in batch), unconfirmed)
                    continue
                except KafkaQuotasError as error:
                    if not outcomes:
                        raise
                    lost = error
            outcomes |= dict.fromkeys((alteration.entity for alteration in batch), lost)
        return outcomes

    def _sent_batch(self, batch: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        """Send one request and return the error per entity, None where it was accepted."""
        entries = tuple(EntityChanges(each.entity, tuple(each.changes.items())) for each in batch)
        response = self._connection.send(AlterQuotasRequest(entries=entries, validate_only=validate_only))
        answered = alter_outcomes(response)
        errors: dict[Entity, KafkaQuotasError | None] = {}
        for alteration in batch:
            code, message = answered.get(alteration.entity, (None, None))
            errors[alteration.entity] = None
            if code is None:
                errors[alteration.entity] = StoreError(f"{self.url} said nothing about this entity")
            elif code:
                errors[alteration.entity] = self._connection.error(code, message, missing_acl=ALTER_ACL)
        return errors


def _merged(alterations: Sequence[Alteration]) -> list[Alteration]:
    """Return one alteration per entity, in order, with the later of two changes to a key."""
    changes: dict[Entity, dict[str, float | None]] = {}
    for alteration in alterations:
        changes.setdefault(alteration.entity, {}).update(alteration.changes)
    return [Alteration(entity=entity, changes=merged) for entity, merged in changes.items()]


def _revision(entries: Sequence[QuotaEntry]) -> str:
    from hashlib import sha256  # noqa: PLC0415 - only a watch needs it

    digest = sha256()
    for entry in entries:
        digest.update(repr((entry.entity.parts, sorted(entry.quotas.items()))).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

"""The Kafka store: quotas in the cluster itself, through the admin protocol of any broker (2.6 and later).

Contract: our refusals come first, then the broker validates. All alterations of one entity are merged into one entry,
every entity has its own result, and accepted changes are read back until every broker shows them.
"""

from collections.abc import Sequence
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
from kafka_quotas.stores.acceptance import ValidationRules, refusal
from kafka_quotas.stores.kafka.cluster_client import ClusterClient
from kafka_quotas.stores.kafka.errors import LostAnswerError
from kafka_quotas.stores.kafka.messages import (
    alter_outcomes,
    alter_request,
    describe_request,
    described_entries,
    request_batches,
)
from kafka_quotas.stores.kafka.visibility import Visibility, wait_until_visible
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot
from kafka_quotas.stores.timeouts import timeouts
from kafka_quotas.stores.url import StoreUrl

POLL_INTERVAL_S: Final = 0.5
DESCRIBE_ACL: Final = "DescribeConfigs"
ALTER_ACL: Final = "AlterConfigs"
_DEFAULTS = StoreSettings()


class KafkaStore:
    """Quotas in a Kafka cluster, connected at the first call."""

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        self.url = str(address)
        self._settings = settings
        self._rules = ValidationRules.SERVER_ONLY if settings.allow_invalid else ValidationRules.OURS_ONLY
        self._connection = ClusterClient(address, settings=settings)
        self._timeout_s = timeouts(settings).call_s
        self._warned: set[str] = set()
        self._polling = polling or Polling(POLL_INTERVAL_S)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """Return the matching entries, sorted by entity.

        Raises:
            InvalidQuotaError: Kafka refuses the filter.
            StoreRefusedError: The ACL DescribeConfigs on the cluster is missing, the credentials are refused, or the
                brokers are too old.
            StoreUnreachableError: No broker answers.
            StoreError: The broker answers with another error, or the store was closed.
        """
        self._check_open()
        refused = filter_verdict_kraft(quota_filter)
        if refused is not None:
            raise refused
        response = self._connection.send(describe_request(quota_filter))
        if response.error_code:
            raise self._connection.error(response.error_code, response.error_message, missing_acl=DESCRIBE_ACL)
        return described_entries(response)

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """Apply the alterations, or have the broker only check them with `validate_only`.

        Returns:
            One result per alteration, in order. An accepted alteration that some broker does not show in time has a
                `NotVisibleError`.

        Raises:
            StoreRefusedError: The credentials are refused or the brokers are too old, and nothing was written.
            StoreUnreachableError: No broker answers, and nothing was written.
        """
        self._check_open()
        errors = [refusal(entry, rules=self._rules) for entry in entries]
        merged = _merged([entry for entry, error in zip(entries, errors, strict=True) if error is None])
        outcomes = self._sent(merged, validate_only=validate_only)
        if self._settings.wait and not validate_only:
            done = [alteration for alteration in merged if outcomes[alteration.entity] is None]
            found = wait_until_visible(self._connection, done, timeout_s=self._timeout_s)
            outcomes |= dict.fromkeys(found.behind, self._not_visible())
            self._warn_of(found)
        return [
            AlterationResult(entity=entry.entity, error=error or outcomes[entry.entity])
            for entry, error in zip(entries, errors, strict=True)
        ]

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        """Wait until the content differs from revision `since`, and return it.

        Kafka has no notification for this, so the store reads all quotas every half second. The exceptions are those of
        `describe`.

        Returns:
            The content, None after `timeout_s` seconds or when the store is closed.
        """
        found: list[Snapshot] = []

        def changed() -> bool:
            entries = tuple(self.describe(EVERYTHING))
            revision = _revision(entries)
            if revision != since:
                found.append(Snapshot(revision=revision, entries=entries))
            return bool(found)

        return found[0] if self._polling.until(changed, timeout_s=timeout_s) else None

    def close(self) -> None:
        """Close the connections and end every `watch`, in any thread."""
        self._polling.stop()
        self._connection.close()

    def _check_open(self) -> None:
        if self._polling.stopped:
            raise StoreError(f"the store was closed: {self.url}")

    def _sent(self, alterations: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        """Send alterations and return the error per entity, None where it was accepted.

        After a lost connection the remaining alterations are not sent.
        """
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
                    outcomes |= {alteration.entity: _unconfirmed(error) for alteration in batch}
                    continue
                except KafkaQuotasError as error:
                    if not outcomes:
                        raise
                    lost = error
            outcomes |= dict.fromkeys((alteration.entity for alteration in batch), lost)
        return outcomes

    def _sent_batch(self, batch: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        """Send one request and return the error per entity, None where it was accepted."""
        response = self._connection.send(alter_request(batch, validate_only=validate_only))
        answered = alter_outcomes(response)
        unanswered: KafkaQuotasError = StoreError(f"{self.url} said nothing about this entity")
        errors: dict[Entity, KafkaQuotasError | None] = {}
        for alteration in batch:
            code, message = answered.get(alteration.entity, (None, None))
            if code is None:
                errors[alteration.entity] = unanswered
            else:
                errors[alteration.entity] = (
                    self._connection.error(code, message, missing_acl=ALTER_ACL) if code else None
                )
        return errors

    def _warn_of(self, found: Visibility) -> None:
        """Warn once of brokers that could not be read back from."""
        if found.not_asked is not None and found.not_asked not in self._warned:
            self._warned.add(found.not_asked)
            self._settings.warn(f"not read back from every broker: {found.not_asked}; the controller has the change")

    def _not_visible(self) -> NotVisibleError:
        return NotVisibleError(
            f"accepted, but not every broker of {self.url} shows it after {self._timeout_s:g} s",
            hint="describe it again; with --no-wait this is not checked",
        )


def _unconfirmed(error: LostAnswerError) -> UnconfirmedError:
    return UnconfirmedError(
        f"not known whether it was changed: {error.message}",
        hint="describe it once the brokers are back; the journal has the change as not confirmed",
    )


def _merged(alterations: Sequence[Alteration]) -> list[Alteration]:
    """Return one alteration per entity, in order.

    Where a key is changed twice, the later change counts.
    """
    changes: dict[Entity, dict[str, float | None]] = {}
    for alteration in alterations:
        changes.setdefault(alteration.entity, {}).update(alteration.changes)
    return [Alteration(entity=entity, changes=merged) for entity, merged in changes.items()]


def _revision(entries: Sequence[QuotaEntry]) -> str:
    """Return a digest of the content."""
    from hashlib import sha256  # noqa: PLC0415 - only a watch needs it

    digest = sha256()
    for entry in entries:
        digest.update(repr((entry.entity.parts, sorted(entry.quotas.items()))).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

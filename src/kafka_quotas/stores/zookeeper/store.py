"""The ZooKeeper store, for clusters up to Kafka 3.9 that run without KRaft: Kafka's own znodes and notifications.

Contract: every change is one transaction that holds the versions it was decided on, the controller's among them, and
the change notification; on a conflict it is decided anew, so that of two tools that change one entity at the same
moment both win. Where a KRaft controller has taken over, nothing is written.
**Source:** `kafka.zk.KafkaZkClient.setOrCreateEntityConfigs`, `kafka.server.ZkAdminManager` (Kafka 3.9).
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, StoreError, StoreUnreachableError, UnconfirmedError
from kafka_quotas.core.formats.zookeeper import CHANGES_PATH
from kafka_quotas.core.model.quota_filter import QuotaFilter, filter_verdict_zk, matches, single_entity
from kafka_quotas.stores.acceptance import ValidationRules, refusal
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot
from kafka_quotas.stores.timeouts import timeouts
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.stores.zookeeper.reader import check_kafka_root, read_all, read_one
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession
from kafka_quotas.stores.zookeeper.writer import ZooKeeperWriter

POLL_INTERVAL_S: Final = 0.1
_DEFAULTS = StoreSettings()


class ZooKeeperStore:
    """Quotas in the znodes of a Kafka cluster; connects at the first call."""

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        self.url = str(address)
        self._rules = ValidationRules.ZOOKEEPER_ONLY if settings.allow_invalid else ValidationRules.ZOOKEEPER
        self._session = ZooKeeperSession(address, settings=settings)
        self._writer = ZooKeeperWriter(self._session, url=self.url, timeout_s=timeouts(settings).call_s)
        self._polling = polling or Polling(POLL_INTERVAL_S)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """The matching entries, sorted by entity.

        Raises `InvalidQuotaError` for a filter that a broker would refuse, `StoreUnreachableError` where no server
        answers, `StoreRefusedError` where there is no Kafka under the chroot or access is denied, `StoreError` where a
        znode holds what is no quota.
        """
        self._check_open()
        refused = filter_verdict_zk(quota_filter)
        if refused is not None:
            raise refused
        check_kafka_root(self._session, url=self.url)
        only = single_entity(quota_filter)
        if only is not None:
            return read_one(self._session, only)
        return [entry for entry in read_all(self._session) if matches(quota_filter, entry.entity)]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """One result per alteration, in order; with `validate_only` znodes and controller are read, nothing is written.

        Once the servers are lost the alterations that are left carry that error, as nothing is known to have failed
        before. Raises `StoreUnreachableError` where nothing was written at all.
        """
        self._check_open()
        results: list[AlterationResult] = []
        lost: StoreUnreachableError | None = None
        for entry in entries:
            error = refusal(entry, rules=self._rules) or lost or self._error_of(entry, validate_only=validate_only)
            results.append(AlterationResult(entity=entry.entity, error=error))
            if isinstance(error, StoreUnreachableError) and lost is None:
                lost = StoreUnreachableError(error.message, hint=error.hint)  # what is left was not sent
        sent = any(isinstance(result.error, UnconfirmedError | None) for result in results)
        if lost is not None and not sent:
            raise lost
        return results

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        """The content as soon as a change was notified after `since`; None after `timeout_s` or when closed.

        A change that nobody notified is not seen, as brokers don't see it. Raises what `describe` raises.
        """
        found: list[Snapshot] = []

        def changed() -> bool:
            revision = self._revision()
            if revision != since:
                # It is older than the content or just as old: what comes in between shows as a change next time.
                found.append(Snapshot(revision=revision, entries=tuple(read_all(self._session))))
            return bool(found)

        return found[0] if self._polling.until(changed, timeout_s=timeout_s) else None

    def close(self) -> None:
        """Nothing; the session ends, and a `watch` in another thread too."""
        self._polling.stop()
        self._session.close()

    def _check_open(self) -> None:
        if self._polling.stopped:
            raise StoreError(f"the store was closed: {self.url}")

    def _revision(self) -> str:
        """The transaction of the last change notification."""
        return f"zxid:{self._session.child_revision(CHANGES_PATH) or 0}"

    def _error_of(self, alteration: Alteration, *, validate_only: bool) -> KafkaQuotasError | None:
        """Why an accepted alteration could not be applied, None where it was."""
        try:
            self._writer.write(alteration.entity, alteration.changes, validate_only=validate_only)
        except KafkaQuotasError as error:
            return error
        return None

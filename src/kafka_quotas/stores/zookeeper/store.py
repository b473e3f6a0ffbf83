"""The ZooKeeper store, for clusters up to Kafka 3.9 that run without KRaft.

Contract: it uses Kafka's own znodes and notifications. Every change is one transaction with the change notification and
the versions that it depends on, the controller's among them. After a conflict it is decided anew, so that no change is
lost where two tools change one entity at the same moment. Where a KRaft controller has taken over, nothing is written.
After the servers are lost, the remaining alterations carry that error, as they were not sent. Like a broker, a watch
does not see a change without notification.
**Source:** `kafka.zk.KafkaZkClient.setOrCreateEntityConfigs`, `kafka.server.ZkAdminManager` (Kafka 3.9).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError, UnconfirmedError
from kafka_quotas.core.formats.zookeeper import CHANGES_PATH
from kafka_quotas.core.model.quota_filter import QuotaFilter, filter_verdict_zk, matches, single_entity
from kafka_quotas.stores.acceptance import checked
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings, timeouts
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot
from kafka_quotas.stores.url import StoreKind, StoreUrl
from kafka_quotas.stores.zookeeper.reader import check_kafka_root, read_all, read_one
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession
from kafka_quotas.stores.zookeeper.writer import ZooKeeperWriter

POLL_INTERVAL_S: Final = 0.1
_DEFAULTS = StoreSettings()


class ZooKeeperStore:
    """Quotas in the znodes of a Kafka cluster, connected at the first call."""

    kind = StoreKind.ZOOKEEPER

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        self.url = str(address)
        self._allow_invalid = settings.allow_invalid
        self._session = ZooKeeperSession(address, settings=settings)
        self._writer = ZooKeeperWriter(self._session, url=self.url, timeout_s=timeouts(settings).call_s)
        self._polling = polling or Polling(POLL_INTERVAL_S)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        self._polling.check_open(self.url)
        refused = filter_verdict_zk(quota_filter)
        if refused is not None:
            raise refused
        check_kafka_root(self._session, url=self.url)
        only = single_entity(quota_filter)
        if only is not None:
            return read_one(self._session, only)
        return [entry for entry in read_all(self._session) if matches(quota_filter, entry.entity)]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        self._polling.check_open(self.url)
        results: list[AlterationResult] = []
        lost: StoreUnreachableError | None = None
        for entry in entries:
            result = checked(entry, kind=self.kind, describe=self.describe, allow_invalid=self._allow_invalid)
            error = result.error or lost or self._error_of(entry, validate_only=validate_only)
            results.append(replace(result, error=error))
            if isinstance(error, StoreUnreachableError) and lost is None:
                lost = StoreUnreachableError(error.message, hint=error.hint)  # what is left was not sent
        sent = any(isinstance(result.error, UnconfirmedError | None) for result in results)
        if lost is not None and not sent:
            raise lost
        return results

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        def changed() -> Snapshot | None:
            # That of the last change notification, older than the content or just as old: what comes in between shows
            # as a change next time.
            revision = f"zxid:{self._session.child_revision(CHANGES_PATH) or 0}"
            return None if revision == since else Snapshot(revision=revision, entries=tuple(read_all(self._session)))

        return self._polling.first(changed, timeout_s=timeout_s)

    def close(self) -> None:
        self._polling.stop()
        self._session.close()

    def _error_of(self, alteration: Alteration, *, validate_only: bool) -> KafkaQuotasError | None:
        """Write an accepted alteration, and return the error where that fails."""
        try:
            self._writer.write(alteration.entity, alteration.changes, validate_only=validate_only)
        except KafkaQuotasError as error:
            return error
        return None

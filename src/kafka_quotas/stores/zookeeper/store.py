"""The ZooKeeper store, for clusters up to Kafka 3.9 that run without KRaft.

Contract: it uses Kafka's own znodes and notifications. Every change is one transaction with the change notification and
the versions that it depends on, the controller's among them. After a conflict it is decided anew, so that no change is
lost if two tools change one entity at the same moment. If a KRaft controller has taken over, nothing is written. After
the servers are lost, the remaining alterations carry that error, as they were not sent. Like a broker, a watch does not
see a change without notification.

**Source:** `kafka.zk.KafkaZkClient.setOrCreateEntityConfigs`, `kafka.server.ZkAdminManager` (Kafka 3.9).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka_quotas.core.errors import (
    KafkaQuotasError,
    StoreError,
    StoreRefusedError,
    StoreUnreachableError,
    UnconfirmedError,
)
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.formats.zookeeper import CHANGES_PATH, CONFIG_ROOT, znode_path
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter, filter_verdict_zk, matches, single_entity
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings, timeouts
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot, checked
from kafka_quotas.stores.url import StoreKind, StoreUrl
from kafka_quotas.stores.zookeeper.reader import check_kafka_root, read_all, read_one
from kafka_quotas.stores.zookeeper.session import InterruptedTransactionError, ZooKeeperSession
from kafka_quotas.stores.zookeeper.transaction import Check, Create, Step, chain_paths, planned_steps

CONTROLLER_PATH: Final = "/controller"
EPOCH_PATH: Final = "/controller_epoch"
"""The znode to which each new controller writes its epoch, when it replaces `/controller` by one of version 0.

**Source:** `KafkaZkClient.tryRegisterKRaftControllerAsActiveController`, Kafka 3.9.
"""
MIGRATION_PATH: Final = "/migration"
_KRAFT_HINT: Final = "set quotas through a broker instead: --bootstrap-server HOST:9092"


class ZooKeeperWriter:
    """A writer of alterations, one at a time, for `timeout_s` seconds of conflicts or interruptions."""

    def __init__(
        self,
        session: ZooKeeperSession,
        *,
        url: str,
        timeout_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._url = url
        self._timeout_s = timeout_s
        self._monotonic_s = monotonic_s
        self._acls: dict[str, list[Any]] = {}
        self._interrupted = False

    def write(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Write the changes and their notification, or check that they could be written with `validate_only`."""
        self._interrupted = False
        try:
            self._repeat(entity, changes, validate_only=validate_only)
        except StoreUnreachableError as error:
            if not self._interrupted or isinstance(error, UnconfirmedError):
                raise
            raise UnconfirmedError(f"not known whether it was changed: {error.message}", hint=error.hint) from error

    def _repeat(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        deadline_s = self._monotonic_s() + self._timeout_s
        while not self._attempt(entity, changes, validate_only=validate_only):
            if self._monotonic_s() > deadline_s:
                raise StoreUnreachableError(f"other writers or lost connections kept {self._url} from taking a change")

    def _attempt(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> bool:
        self._prepare(entity, validate_only=validate_only)
        paths = [CONTROLLER_PATH, EPOCH_PATH, MIGRATION_PATH, *chain_paths(entity)]
        controller, epoch, migration, *chain = self._session.nodes(paths)
        # A controller that takes over in between changes one of these znodes, which fails the transaction.
        guard: list[Step] = []
        if epoch is not None:
            guard.append(Check(path=EPOCH_PATH, version=epoch.version))
        if controller is not None:
            _refuse_kraft(self._url, controller.data)
            guard.append(Check(path=CONTROLLER_PATH, version=controller.version))
        elif migration is not None:
            raise _taken_over(self._url)
        steps = planned_steps(entity, changes, chain)
        return validate_only or self._commit((*guard, *steps))

    def _prepare(self, entity: Entity, *, validate_only: bool) -> None:
        """Create Kafka's folders where they are missing, and read the access lists for new znodes in them."""
        folders = [folder for folder in (_folder(znode_path(entity)), CHANGES_PATH) if folder not in self._acls]
        if not folders:
            return
        check_kafka_root(self._session, url=self._url)
        for folder, node in zip(folders, self._session.nodes(folders), strict=True):
            if node is None:
                if validate_only:
                    continue
                self._session.commit([Create(path=folder)], acls=lambda _: self._session.acls(CONFIG_ROOT))
            self._acls[folder] = self._session.acls(folder)

    def _commit(self, steps: Sequence[Step]) -> bool:
        applied = False
        try:
            # A new znode gets the access list of the folder it lies in, so that brokers keep the access they have.
            applied = self._session.commit(steps, acls=lambda path: self._acls[_folder(path)])
        except InterruptedTransactionError:
            self._interrupted = True  # the same changes may be applied twice without harm
        if not applied:
            self._acls.clear()  # the folders may be among what changed
        return applied


def _folder(path: str) -> str:
    """Return the folder two levels deep that a path is in, such as `/config/users` or `/config/changes`."""
    return "/".join(path.split("/")[:3])


def _refuse_kraft(url: str, data: bytes | None) -> None:
    """Refuse a controller that is no broker in ZooKeeper mode, or that can't be parsed."""
    try:
        registration = load_json(data or b"")
        kraft_epoch = registration.get("kraftControllerEpoch", -1)
    except (ValueError, AttributeError) as error:
        raise StoreError(f"the controller's registration in {url} can't be read") from error
    if isinstance(kraft_epoch, int) and kraft_epoch > 0:
        raise _taken_over(url)


def _taken_over(url: str) -> StoreRefusedError:
    return StoreRefusedError(f"a KRaft controller has taken over from {url}; nothing was written", hint=_KRAFT_HINT)


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
        try:
            self._writer.write(alteration.entity, alteration.changes, validate_only=validate_only)
        except KafkaQuotasError as error:
            return error
        return None

"""Writing to ZooKeeper: read, decide, compare-and-set, and once more where someone else was faster."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka_quotas.core.errors import StoreError, StoreRefusedError, StoreUnreachableError, UnconfirmedError
from kafka_quotas.core.formats.zookeeper import CHANGES_PATH, CONFIG_ROOT, znode_path
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.zookeeper.reader import check_kafka_root
from kafka_quotas.stores.zookeeper.session import InterruptedTransactionError, ZooKeeperSession
from kafka_quotas.stores.zookeeper.transaction import Check, Create, Step, chain_paths, planned_steps

CONTROLLER_PATH: Final = "/controller"
EPOCH_PATH: Final = "/controller_epoch"
"""Each controller that takes over writes its epoch here; it deletes `/controller` and makes it again at version 0.

**Source:** `KafkaZkClient.tryRegisterKRaftControllerAsActiveController`, Kafka 3.9."""
MIGRATION_PATH: Final = "/migration"
_KRAFT_HINT: Final = "set quotas through a broker instead: --bootstrap-server HOST:9092"


class ZooKeeperWriter:
    """Applies alterations one by one; gives up after `timeout_s` of conflicts or interruptions (seconds)."""

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
        """Nothing, once the changes are in ZooKeeper and notified; with `validate_only` once they could be.

        Raises `StoreRefusedError` where a KRaft controller has taken over or access is denied, `StoreUnreachableError`
        where the servers don't answer (`UnconfirmedError` where a transaction was sent by then), `StoreError` where
        znodes hold what can't be read.
        """
        self._interrupted = False
        try:
            self._repeat(entity, changes, validate_only=validate_only)
        except StoreUnreachableError as error:
            if not self._interrupted or isinstance(error, UnconfirmedError):
                raise
            raise UnconfirmedError(f"not known whether it was changed: {error.message}", hint=error.hint) from error

    def _repeat(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Try until the changes are applied, or the time is up."""
        deadline_s = self._monotonic_s() + self._timeout_s
        while not self._attempt(entity, changes, validate_only=validate_only):
            if self._monotonic_s() > deadline_s:
                raise StoreUnreachableError(f"other writers or lost connections kept {self._url} from taking a change")

    def _attempt(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> bool:
        """Whether the changes were applied; False where something changed between reading and writing."""
        self._prepare(entity, validate_only=validate_only)
        paths = [CONTROLLER_PATH, EPOCH_PATH, MIGRATION_PATH, *chain_paths(entity)]
        controller, epoch, migration, *chain = self._session.nodes(paths)
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
        """Nothing, once Kafka's folders for this entity and for notifications are there."""
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
        """Whether the transaction was applied; False on a conflict, and where the connection was lost meanwhile.

        Applying the same changes a second time does no harm, so a transaction of unknown outcome is decided anew.
        """
        applied = False
        try:
            # A new znode gets the access list of the folder it lies in, so that brokers keep the access they have.
            applied = self._session.commit(steps, acls=lambda path: self._acls[_folder(path)])
        except InterruptedTransactionError:
            self._interrupted = True
        if not applied:
            self._acls.clear()  # the folders may be among what changed
        return applied


def _folder(path: str) -> str:
    """The znode below `/config` in which a path lies: `/config/users`, `/config/changes`, ..."""
    return "/".join(path.split("/")[:3])


def _refuse_kraft(url: str, data: bytes | None) -> None:
    """Nothing, where the controller is a broker in ZooKeeper mode.

    Raises `StoreRefusedError` where it is a KRaft controller, `StoreError` where its registration can't be read.
    """
    try:
        registration = json.loads(data or b"")
        kraft_epoch = registration.get("kraftControllerEpoch", -1)
    except (ValueError, AttributeError) as error:
        raise StoreError(f"the controller's registration in {url} can't be read") from error
    if isinstance(kraft_epoch, int) and kraft_epoch > 0:
        raise _taken_over(url)


def _taken_over(url: str) -> StoreRefusedError:
    return StoreRefusedError(f"a KRaft controller has taken over from {url}; nothing was written", hint=_KRAFT_HINT)

"""The ZooKeeper store, for clusters up to Kafka 3.9 that run without KRaft.

Contract: it uses Kafka's own znodes and notifications. Every change is one transaction with the change notification and
the versions that it depends on, the controller's among them. After a conflict it is decided anew, so that no change is
lost if two tools change one entity at the same moment. SCRAM credentials, which are in the same znode, stay as they
are. Kafka takes the same steps one by one and without versions. If a KRaft controller has taken over, nothing is
written. After the servers are lost, the remaining alterations carry that error, as they were not sent. Like a broker,
a watch does not see a change without notification.

**Source:** `kafka.zk.KafkaZkClient.setOrCreateEntityConfigs`, `kafka.server.ZkAdminManager` (Kafka 3.9).
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS
from kafka_quotas.core.errors import (
    KafkaQuotasError,
    StoreError,
    StoreRefusedError,
    StoreUnreachableError,
    UnconfirmedError,
)
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.formats.zookeeper import (
    CHANGE_PREFIX,
    CHANGES_PATH,
    CONFIG_ROOT,
    change_notification,
    changed_config,
    decode_config,
    encode_config,
    parent_paths,
    znode_path,
)
from kafka_quotas.core.model.entity import Entity, QuotaFilter, single_entity
from kafka_quotas.stores.address import StoreKind, StoreSettings, StoreUrl, timeouts
from kafka_quotas.stores.store import Alteration, ClusterInfo, Polling, QuotaEntry, Snapshot, Store
from kafka_quotas.stores.zookeeper.reader import (
    ReadableZnodes,
    check_kafka_root,
    cluster_id,
    cluster_info,
    old_brokers,
    read_all,
    read_one,
)
from kafka_quotas.stores.zookeeper.session import (
    InterruptedTransactionError,
    ZnodeState,
    ZnodeStep,
    ZooKeeperSession,
)


def chain_paths(entity: Entity) -> tuple[str, ...]:
    """Return the paths that an alteration has to read, outermost first, the entity's own last."""
    return (*parent_paths(entity), znode_path(entity))


def planned_steps(
    entity: Entity, changes: Mapping[str, float | None], chain: Sequence[ZnodeState | None]
) -> tuple[ZnodeStep, ...]:
    """Return the steps that apply the changes, by the nodes at `chain_paths(entity)`."""
    paths = chain_paths(entity)
    nodes = dict(zip(paths, chain, strict=True))
    before = _config(chain[-1])
    kept = ((key, value) for key, value in changes.items() if value is not None or key not in SCRAM_MECHANISMS)
    after = changed_config(before, kept)
    own = chain[-1]
    steps: list[ZnodeStep] = []
    if not after and (own is None or not own.children):
        useless = _useless_paths(paths, nodes)
        steps = [
            ZnodeStep("delete", path, version=node.version) for path in useless if (node := nodes[path]) is not None
        ]
    elif own is None:
        missing = [path for path in paths[:-1] if nodes[path] is None]
        steps = [
            *(ZnodeStep("create", path) for path in missing),
            ZnodeStep("create", paths[-1], data=encode_config(after)),
        ]
    elif after != before or not after:
        steps = [ZnodeStep("set_data", paths[-1], data=encode_config(after), version=own.version)]
    return (*steps, ZnodeStep("create", CHANGE_PREFIX, data=change_notification(entity), sequence=True))


def _config(node: ZnodeState | None) -> dict[str, str]:
    return decode_config(node.data) if node is not None else {}


def _useless_paths(paths: Sequence[str], nodes: Mapping[str, ZnodeState | None]) -> list[str]:
    """Return a childless znode and the znodes above that hold nothing but it, innermost first."""
    found = [paths[-1]]
    for path in reversed(paths[:-1]):
        node = nodes[path]
        alone = node is not None and node.children == 1 and nodes[found[-1]] is not None
        # A user's znode may hold quotas of its own, or credentials; the folder of its client-ids holds nothing.
        if not alone or (path == paths[0] and _config(node)):
            break
        found.append(path)
    return found


CONTROLLER_PATH: Final = "/controller"
EPOCH_PATH: Final = "/controller_epoch"
"""The znode to which each new controller writes its epoch, when it replaces `/controller` by one of version 0.

**Source:** `KafkaZkClient.tryRegisterKRaftControllerAsActiveController`, Kafka 3.9.
"""
MIGRATION_PATH: Final = "/migration"
_KRAFT_HINT: Final = "set quotas through a broker instead: --bootstrap-server HOST:9092"


def _folder(path: str) -> str:
    """Return the folder two levels deep that a path is in, such as `/config/users` or `/config/changes`."""
    return "/".join(path.split("/")[:3])


_DEFAULTS = StoreSettings()


class ZooKeeperStore(Store):
    """Quotas in the znodes of a Kafka cluster, connected at the first call."""

    kind = StoreKind.ZOOKEEPER
    interval_s = 0.1

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        super().__init__(str(address), polling=polling, allow_invalid=settings.allow_invalid)
        self._session = ZooKeeperSession(address, settings=settings)
        self._past_refusals = partial(ReadableZnodes, address, settings=settings)
        self._timeout_s = timeouts(settings).call_s
        self._acls: dict[str, list[Any]] = {}

    def cluster_info(self) -> ClusterInfo:
        with closing(self._past_refusals()) as session:
            return cluster_info(session)

    def cluster_id(self) -> str | None:
        return cluster_id(self._session)

    def old_brokers(self) -> tuple[str, ...]:
        return tuple(old_brokers(self._session))

    def _read(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        check_kafka_root(self._session, url=self.url)
        only = single_entity(quota_filter)
        return read_all(self._session) if only is None else read_one(self._session, only)

    def _write(self, accepted: Sequence[Alteration], *, validate_only: bool) -> list[KafkaQuotasError | None]:
        errors: list[KafkaQuotasError | None] = []
        lost: StoreUnreachableError | None = None
        for alteration in accepted:
            error = lost or self._error_of(alteration, validate_only=validate_only)
            errors.append(error)
            if isinstance(error, StoreUnreachableError) and lost is None:
                lost = StoreUnreachableError(error.message, hint=error.hint)  # what is left was not sent
        if lost is not None and not any(isinstance(error, UnconfirmedError | None) for error in errors):
            raise lost
        return errors

    def _changed(self, since: str | None) -> Snapshot | None:
        # That of the last change notification, older than the content or just as old: what comes in between shows as a
        # change next time.
        revision = f"zxid:{self._session.child_revision(CHANGES_PATH) or 0}"
        return None if revision == since else Snapshot(revision=revision, entries=tuple(read_all(self._session)))

    def _release(self) -> None:
        self._session.close()

    def _error_of(self, alteration: Alteration, *, validate_only: bool) -> KafkaQuotasError | None:
        """Write the changes and their notification, and return the error, None for success.

        Conflicts and interruptions are tried again until the time is up. The same changes may be applied twice without
        harm.
        """
        deadline_s = time.monotonic() + self._timeout_s
        interrupted = False
        error: KafkaQuotasError | None = None
        while error is None:
            try:
                if self._attempt(alteration, validate_only=validate_only):
                    return None
            except InterruptedTransactionError:
                interrupted = True
            except KafkaQuotasError as found:
                error = found
            self._acls.clear()  # the folders may be among what changed
            if error is None and time.monotonic() > deadline_s:
                reason = f"other writers or lost connections kept {self.url} from taking a change"
                error = StoreUnreachableError(reason)
        if interrupted and isinstance(error, StoreUnreachableError) and not isinstance(error, UnconfirmedError):
            return UnconfirmedError(f"not known whether it was changed: {error.message}", hint=error.hint)
        return error

    def _attempt(self, alteration: Alteration, *, validate_only: bool) -> bool:
        entity = alteration.entity
        self._prepare(entity, validate_only=validate_only)
        paths = [CONTROLLER_PATH, EPOCH_PATH, MIGRATION_PATH, *chain_paths(entity)]
        controller, epoch, migration, *chain = self._session.nodes(paths)
        # A controller that takes over in between changes one of these znodes, which fails the transaction.
        guard = [
            ZnodeStep("check", path, version=node.version)
            for path, node in ((EPOCH_PATH, epoch), (CONTROLLER_PATH, controller))
            if node is not None
        ]
        is_kraft = migration is not None if controller is None else self._is_kraft(controller)
        if is_kraft:
            raise StoreRefusedError(
                f"a KRaft controller has taken over from {self.url}; nothing was written", hint=_KRAFT_HINT
            )
        steps = planned_steps(entity, alteration.changes, chain)
        # A new znode gets the access list of the folder it lies in, so that brokers keep the access they have.
        return validate_only or self._session.commit((*guard, *steps), acls=lambda path: self._acls[_folder(path)])

    def _is_kraft(self, controller: ZnodeState) -> bool:
        try:
            kraft_epoch = load_json(controller.data or b"").get("kraftControllerEpoch", -1)
        except (ValueError, AttributeError) as error:
            raise StoreError(f"the controller's registration in {self.url} can't be read") from error
        return isinstance(kraft_epoch, int) and kraft_epoch > 0

    def _prepare(self, entity: Entity, *, validate_only: bool) -> None:
        """Create Kafka's folders where they are missing, and read the access lists for new znodes in them."""
        folders = [folder for folder in (_folder(znode_path(entity)), CHANGES_PATH) if folder not in self._acls]
        if not folders:
            return
        check_kafka_root(self._session, url=self.url)
        for folder, node in zip(folders, self._session.nodes(folders), strict=True):
            if node is None:
                if validate_only:
                    continue
                self._session.commit([ZnodeStep("create", folder)], acls=lambda _: self._session.acls(CONFIG_ROOT))
            self._acls[folder] = self._session.acls(folder)

"""The connection to ZooKeeper: kazoo's client, connected at first use, with its errors in our words.

Contract: a read is repeated until the time is up when the connection is lost or the session expires. A transaction is
not repeated, and its caller has to find out its outcome. When the time is up the client is dropped with all requests
that it had queued, so that it writes nothing after an error was reported. The next call connects anew.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from kafka_quotas.core.errors import StoreError, StoreRefusedError, StoreUnreachableError, UnconfirmedError
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.reachability import check_reachable, quieten
from kafka_quotas.stores.settings import StoreSettings, timeouts
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.stores.zookeeper.client import AUTH_HINT, discard, started_client, unreachable
from kafka_quotas.stores.zookeeper.properties import kazoo_arguments, zookeeper_tls
from kafka_quotas.stores.zookeeper.transaction import Check, Create, Delete, SetData, Step, ZnodeState

RETRY_INTERVAL_S = 0.1
_BATCH = 500
_INTERRUPTED = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
_CONFLICTS = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)
_SPARED = (RolledBackError, RuntimeInconsistency)  # what the steps before and after the one that failed report


class InterruptedTransactionError(UnconfirmedError):
    """A transaction that a lost connection interrupted, and that may or may not have been applied."""


class ZooKeeperSession:
    """A session with the ensemble at an address, whose waits end after the timeout of the settings."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        quieten("kazoo")
        self._url = str(address)
        self._servers = address.servers
        self._hosts = ",".join(address.servers) + address.chroot
        self._timeout_s = timeouts(settings).call_s
        self._arguments = kazoo_arguments(settings.client_properties)
        self._tls = zookeeper_tls(settings.client_properties)
        self._client: Any = None
        self._closed = False

    def node(self, path: str) -> ZnodeState | None:
        """Return the znode at a path, None where there is none."""
        return self.nodes([path])[0]

    def nodes(self, paths: Sequence[str]) -> list[ZnodeState | None]:
        """Return the znodes at some paths, in order, None for those that do not exist."""
        return [node and _node(*node) for node in self._gather("get_async", paths)]

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of some znodes, in order, none where there is no znode."""
        return [names or [] for names in self._gather("get_children_async", paths)]

    def child_revision(self, path: str) -> int | None:
        """Return the transaction (zxid) that last added or removed a child of a znode, None without znode."""
        stat = self._repeated(lambda client: client.exists_async(path))
        return None if stat is None else stat.pzxid

    def acls(self, path: str) -> list[Any]:
        """Return the access list of a znode, in kazoo's form."""
        return list(self._repeated(lambda client: client.get_acls_async(path))[0])

    def commit(self, steps: Sequence[Step], *, acls: Callable[[str], list[Any]]) -> bool:
        """Commit the steps as one transaction, and return whether each znode was as its step expects it.

        `acls` returns the access list of a new znode by its path.

        Raises:
            InterruptedTransactionError: The outcome is unknown, and another attempt may find it out.
            UnconfirmedError: The outcome is unknown, as no answer arrived in time.
            StoreRefusedError: Access was denied.
        """
        prepared = [(step, acls(step.path) if isinstance(step, Create) else []) for step in steps]
        transaction = self._connected().transaction()
        for step, acl in prepared:
            _add(transaction, step, acl)
        try:
            results = self._wait(transaction.commit_async())
        except _INTERRUPTED as error:
            raise InterruptedTransactionError(f"the connection to {self._url} was lost") from error
        except StoreUnreachableError as error:
            raise UnconfirmedError(f"not known whether it was changed: {error.message}", hint=error.hint) from error
        failures = [result for result in results if isinstance(result, Exception) and not isinstance(result, _SPARED)]
        if failures and not isinstance(failures[0], _CONFLICTS):
            raise self._translated(failures[0]) from failures[0]
        return not failures

    def close(self) -> None:
        """End the session, and refuse to start others."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        """Discard the present client with all requests that it had queued."""
        client, self._client = self._client, None
        if client is not None:
            discard(client)

    def _gather(self, method: str, paths: Sequence[str]) -> list[Any]:
        """Return the answers to reads that are sent in batches, None for znodes that do not exist."""
        answers: list[Any] = []
        for start in range(0, len(paths), _BATCH):
            batch = paths[start : start + _BATCH]
            answers += self._repeated(partial(_Together, method, batch))
        return answers

    def _repeated(self, request: Callable[[Any], Any]) -> Any:
        """Return the answer to a read, which is sent again while the connection is being restored."""
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(self._wait(request(self._connected())))
            except _INTERRUPTED:
                return False
            return True

        if not Polling(RETRY_INTERVAL_S).until(answered, timeout_s=self._timeout_s):
            self._drop()
            raise self._unreachable()
        return answers[0]

    def _wait(self, pending: Any) -> Any:
        """Wait for the result of a request, no longer than the timeout, and translate kazoo's errors."""
        try:
            return pending.get(timeout=self._timeout_s)
        except _INTERRUPTED:
            raise
        except KazooTimeoutError as error:
            self._drop()
            raise self._unreachable() from error
        except KazooException as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> StoreError:
        if isinstance(error, NoAuthError):
            return StoreRefusedError(f"{self._url} denied access", hint=AUTH_HINT)
        if isinstance(error, AuthFailedError):
            return StoreRefusedError(f"{self._url} refused the credentials", hint=AUTH_HINT)
        return StoreError(f"{self._url} failed: {type(error).__name__} {error}".rstrip())

    def _connected(self) -> Any:
        """Return the client, after connecting it where that is still to be done."""
        if self._closed:
            raise StoreError(f"the store was closed: {self._url}")
        if self._client is None:
            check_reachable(self._servers, url=self._url, timeout_s=self._timeout_s, tls=self._tls)
            self._client = started_client(
                self._hosts, self._arguments, tls=self._tls, url=self._url, timeout_s=self._timeout_s
            )
        return self._client

    def _unreachable(self) -> StoreUnreachableError:
        return unreachable(self._url, timeout_s=self._timeout_s, tls=self._tls is not None)


class _Together:
    """Several requests at once, with one wait for all."""

    def __init__(
        self, method: str, paths: Sequence[str], client: Any, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._pending = [getattr(client, method)(path) for path in paths]
        self._monotonic_s = monotonic_s

    def get(self, *, timeout: float) -> list[Any]:
        """Return the answers in order, None for znodes that do not exist, after `timeout` seconds in all."""
        deadline_s = self._monotonic_s() + timeout
        answers: list[Any] = []
        for pending in self._pending:
            try:
                answers.append(pending.get(timeout=max(0.0, deadline_s - self._monotonic_s())))
            except NoNodeError:
                answers.append(None)
        return answers


def _add(transaction: Any, step: Step, acl: list[Any]) -> None:
    match step:
        case Create():
            transaction.create(step.path, step.data, acl=acl, sequence=step.sequence)
        case SetData():
            transaction.set_data(step.path, step.data, step.version)
        case Delete():
            transaction.delete(step.path, step.version)
        case Check():
            transaction.check(step.path, step.version)


def _node(data: bytes | None, stat: Any) -> ZnodeState:
    return ZnodeState(data=data, version=stat.version, children=stat.numChildren)

"""The connection to ZooKeeper: kazoo's client, connected at first use, with its errors in our words.

Contract: a read is repeated until the time is up when the connection is lost or the session expires. A transaction is
not repeated, and its caller has to find out its outcome. When the time is up the client is dropped with all requests
that it had queued, so that it writes nothing after an error was reported. The next call connects anew. The threads of a
client that is given up have ended, and none of their tracebacks reaches standard error.

`docs/reference/stores.md` has the client properties, of which the `ssl` names are those of Kafka's
`--zk-tls-config-file`. Others are ignored.
"""

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from kazoo.client import KazooClient
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
    SASLException,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from kafka_quotas.core.errors import StoreError, StoreRefusedError, StoreUnreachableError, UnconfirmedError, UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.stores.address import ServerAddress, StoreSettings, StoreUrl, network_reason, timeouts
from kafka_quotas.stores.security.sasl import parse_jaas
from kafka_quotas.stores.store import Polling


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeState:
    """A znode as it was read."""

    data: bytes | None
    version: int
    children: int


@dataclass(frozen=True, slots=True)
class ZnodeStep:
    """One step of a transaction, which fails if its znode is not as expected."""

    action: Literal["create", "set_data", "delete", "check"]
    path: str
    data: bytes = b""
    version: int = -1
    sequence: bool = False
    """Whether ZooKeeper appends a number to the name of a new znode."""


AUTH: Final = "zookeeper.auth"
SASL_LOGIN: Final = "zookeeper.sasl.jaas.config"
_ZOOKEEPER: Final = "zookeeper."
_SSL: Final = "zookeeper.ssl."
_NOT_SUPPORTED: Final = ("cipher.suites", "crl.enable", "ocsp.enable")


def kazoo_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of kazoo's client that client properties ask for."""
    arguments: dict[str, Any] = {}
    if properties.get(AUTH):
        scheme, _, credential = properties[AUTH].strip().partition(":")
        if not scheme or not credential or (scheme == "digest" and ":" not in credential):
            raise UsageError(f"{AUTH} is not SCHEME:CREDENTIAL", hint="for example digest:alice:secret")
        arguments["auth_data"] = [(scheme, credential)]
    if properties.get(SASL_LOGIN):
        arguments["sasl_options"] = _sasl_options(properties[SASL_LOGIN])
    return arguments


def zookeeper_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context that client properties ask for, which verifies servers, None without TLS."""
    if properties.get(f"{_SSL}client.enable", "").strip().lower() != "true":
        return None
    for name in _NOT_SUPPORTED:
        if properties.get(f"{_SSL}{name}", "").strip().lower() not in ("", "false"):
            raise UsageError(f"{_SSL}{name} is not supported", hint="leave it out")
    from kafka_quotas.stores.security.tls import tls_context  # noqa: PLC0415 - loads ssl

    as_of_kafka = {name.removeprefix(_ZOOKEEPER): value for name, value in properties.items() if name.startswith(_SSL)}
    try:
        return tls_context(as_of_kafka)
    except UsageError as error:
        raise UsageError(_named(error.message), hint=error.hint and _named(error.hint)) from error


def _named(text: str) -> str:
    """Return a text about Kafka's properties with the ZooKeeper names, which differ in their prefix alone."""
    return re.sub(r"(?<![.\w])ssl\.", _SSL, text)


def _sasl_options(text: str) -> dict[str, str]:
    login = parse_jaas(text, property_name=SASL_LOGIN)
    if not login.module.endswith("DigestLoginModule"):
        hint = "use org.apache.zookeeper.server.auth.DigestLoginModule"
        raise UsageError(f"{SASL_LOGIN}: {login.module} is not supported", hint=hint)
    require_extra("sasl", "puresasl", needed_by=f"{SASL_LOGIN} needs")
    named = {name: login.option(name, property_name=SASL_LOGIN) for name in ("username", "password")}
    return {"mechanism": "DIGEST-MD5", **named}


_PROBE_TIMEOUT_S: Final = 5.0


def check_reachable(servers: Sequence[str], *, url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
    """Check that one of the servers (host:port) accepts a connection, with a TLS handshake if asked for."""
    refusal: StoreRefusedError | None = None
    reasons = []
    for server in servers:
        try:
            probe(server, timeout_s=min(timeout_s, _PROBE_TIMEOUT_S), tls=tls)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or error
            hint = "check the trust store and the security settings in the file named with --command-config"
            refusal = refusal or StoreRefusedError(f"no TLS connection to {server}: {reason}", hint=hint)
            refusal.__cause__ = refusal.__cause__ or error
        except OSError as error:
            reasons.append(f"{server}: {network_reason(error)}")
        else:
            return
    # A failed handshake says more than a server that is down.
    raise refusal or StoreUnreachableError(
        f"{url} can't be reached ({'; '.join(reasons)})", hint="check the address, and that the server runs"
    )


def probe(server: str, *, timeout_s: float, tls: ssl.SSLContext | None) -> None:
    """Connect to a server, and end the connection, or raise an `OSError`."""
    address = ServerAddress.parse(server)
    with closing(socket.create_connection(address, timeout=timeout_s)) as plain:
        if tls is not None:
            tls.wrap_socket(plain, server_hostname=address.host).close()


AUTH_HINT: Final = "name a file with zookeeper.auth or zookeeper.sasl.jaas.config by --command-config"
_POLL_INTERVAL_S: Final = 0.02
_ROUNDS: Final = 5
"""Rounds of failed connections after which the wait ends, as kazoo's pauses make them seconds."""
_REFUSALS: Final = (AuthFailedError, SASLException, SessionClosedRequireSaslError)


class _Threads(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, which keep an exception that ends one, and connect with our own TLS context."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self._tls = tls

    def create_connection(self, address: tuple[str, int], *, hostname: str, timeout: float, **_: Any) -> socket.socket:
        """Return a connected socket, as kazoo expects it."""
        plain = socket.create_connection(address, timeout=timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a thread that keeps its exception, and return it."""

        def guarded() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a thread has no caller to raise to
                self.failure = error

        return super().spawn(guarded)


class _LastWarning(logging.Handler):
    """A log handler that keeps the reason of the last failed attempt to connect, and counts the attempts."""

    def __init__(self, servers: int) -> None:
        super().__init__(logging.WARNING)
        self.reason = ""
        self.failures = 0
        self._servers = servers

    @property
    def hopeless(self) -> bool:
        """Whether connections to all servers failed, round after round."""
        return self.failures >= _ROUNDS * self._servers

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason of a failed connection."""
        if record.args and "Connection" in record.msg:
            self.reason = str(record.args[0] if isinstance(record.args, tuple) else record.args)
            self.failures += 1


def started_client(
    hosts: str, arguments: Mapping[str, Any], *, tls: ssl.SSLContext | None, url: str, timeout_s: float
) -> Any:
    """Return a connected client of the hosts (`host:port,.../chroot`), with more arguments of kazoo's."""
    threads, warning = _Threads(tls), _LastWarning(len(hosts.split(",")))
    log = logging.Logger("kazoo of one store", logging.WARNING)  # noqa: LOG001 - belongs to this client alone
    log.addHandler(warning)
    client = KazooClient(hosts=hosts, timeout=timeout_s, handler=threads, logger=log, **arguments)
    try:
        if _answers(client, threads, warning, timeout_s=timeout_s):
            return client
        failure = threads.failure
        refused = client.client_state == KeeperState.AUTH_FAILED or isinstance(failure, _REFUSALS)
    except BaseException:
        discard(client)
        raise
    discard(client)
    if refused:
        raise StoreRefusedError(f"{url} refused the credentials", hint=AUTH_HINT) from failure
    if failure is not None:
        raise StoreError(f"{url} failed: {type(failure).__name__} {failure}".rstrip()) from failure
    if warning.hopeless:
        what = "not TLS: zookeeper.ssl.client.enable=true speaks it" if tls is None else "that the port speaks TLS"
        raise StoreUnreachableError(
            f"{url} ended {warning.failures} connections ({warning.reason})",
            hint=f"check that it is ZooKeeper, and {what}",
        )
    raise unreachable(url, timeout_s=timeout_s, tls=tls is not None, reason=warning.reason)


def _answers(client: Any, threads: _Threads, warning: _LastWarning, *, timeout_s: float) -> bool:
    """Return whether a first request succeeds, as a session alone does not prove a login."""
    polling = Polling(_POLL_INTERVAL_S)
    pending: list[Any] = []
    started = client.start_async()

    def ended() -> bool:
        refused = client.client_state == KeeperState.AUTH_FAILED or warning.hopeless
        return refused or threads.failure is not None

    def settled() -> bool:
        if started.is_set() and not pending:
            pending.append(client.exists_async("/"))
        return ended() or bool(pending and pending[0].ready())

    return polling.until(settled, timeout_s=timeout_s) and not ended() and pending[0].successful()


def unreachable(url: str, *, timeout_s: float, tls: bool, reason: str = "") -> StoreUnreachableError:
    """Return the error for servers that did not answer in time."""
    detail = f" ({reason})" if reason else ""
    what = "the certificates" if tls else "whether the port speaks TLS"
    return StoreUnreachableError(
        f"{url} gave no answer in {timeout_s:g} s{detail}", hint=f"check that ZooKeeper runs there, and {what}"
    )


def discard(client: Any) -> None:
    """Close the client and end its threads."""
    client.stop()
    client.close()


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
        # kazoo logs the errors that it recovers from; the others reach the user.
        logger = logging.getLogger("kazoo")
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        logger.propagate = logging.getLogger().isEnabledFor(logging.DEBUG)
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
        found = self._gather("get_async", paths)
        return [
            node and ZnodeState(data=node[0], version=node[1].version, children=node[1].numChildren) for node in found
        ]

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of some znodes, in order, none where there is no znode."""
        return [names or [] for names in self._gather("get_children_async", paths)]

    def below(self, folders: Sequence[str]) -> list[tuple[str, ZnodeState | None]]:
        """Return the children of some znodes with their paths."""
        children = zip(folders, self.children(folders), strict=True)
        paths = [f"{folder}/{name}" for folder, names in children for name in names]
        return [*zip(paths, self.nodes(paths), strict=True)]

    def child_revision(self, path: str) -> int | None:
        """Return the transaction (zxid) that last added or removed a child of a znode, None without znode."""
        stat = self._repeated(lambda client: client.exists_async(path))
        return None if stat is None else stat.pzxid

    def acls(self, path: str) -> list[Any]:
        """Return the access list of a znode, in kazoo's form."""
        return list(self._repeated(lambda client: client.get_acls_async(path))[0])

    def commit(self, steps: Sequence[ZnodeStep], *, acls: Callable[[str], list[Any]]) -> bool:
        """Commit the steps as one transaction, and return whether each znode was as its step expects it.

        `acls` returns the access list of a new znode by its path.
        """
        prepared = [(step, acls(step.path) if step.action == "create" else []) for step in steps]
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
        client, self._client = self._client, None
        if client is not None:
            discard(client)

    def _gather(self, method: str, paths: Sequence[str]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(paths), _BATCH):
            batch = paths[start : start + _BATCH]
            answers += self._repeated(partial(GatheredReads, method, batch))
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


class GatheredReads:
    """Reads of several znodes that were begun together."""

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


def _add(transaction: Any, step: ZnodeStep, acl: list[Any]) -> None:
    match step.action:
        case "create":
            transaction.create(step.path, step.data, acl=acl, sequence=step.sequence)
        case "set_data":
            transaction.set_data(step.path, step.data, step.version)
        case _:
            getattr(transaction, step.action)(step.path, step.version)

"""Start of kazoo's client, which ends connected or with one error that has the reason kazoo only logs.

Contract: the threads of a client that is given up have ended, and none of their tracebacks reaches standard error.
"""

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, SASLException, SessionClosedRequireSaslError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from kafka_quotas.core.errors import StoreError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.polling import Polling

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
    """Return a connected client of the hosts (`host:port,.../chroot`), with more arguments of kazoo's.

    Raises:
        StoreRefusedError: The credentials are refused.
        StoreUnreachableError: No server answers in time.
        StoreError: The client failed otherwise.
    """
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
        raise _no_zookeeper(url, warning, tls=tls is not None)
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


def _no_zookeeper(url: str, warning: _LastWarning, *, tls: bool) -> StoreUnreachableError:
    """Return the error for servers that accept connections and end them, again and again."""
    what = "and that the port speaks TLS" if tls else "and not TLS: zookeeper.ssl.client.enable=true speaks it"
    return StoreUnreachableError(
        f"{url} ended {warning.failures} connections ({warning.reason})", hint=f"check that it is ZooKeeper, {what}"
    )


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

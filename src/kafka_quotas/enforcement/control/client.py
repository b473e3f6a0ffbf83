"""Requests to a daemon over its Unix socket: for status, reload, the end of throttle times, and decisions on quotas.

Default paths of control sockets: in the user's runtime folder, one per listening port.
"""

import contextlib
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.groups.membership import ClientGroups
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.control.server import ControlError, check_folder, no_daemon
from kafka_quotas.enforcement.decisions import (
    ANY_QUOTA_TYPES,
    BATCH,
    MAX_BATCH,
    AnyQuotaType,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
    decision_from_json,
    request_to_json,
)
from kafka_quotas.enforcement.proxy.proxy_server import Unmuted
from kafka_quotas.enforcement.quotas.store_watcher import Reloaded
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, answer_from_json

ANSWER_S: Final = 10.0
"""Seconds to wait for a daemon's answer."""
RELOAD_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class RefusedError(KafkaQuotasError):
    """Error for a request that the daemon understood and refused."""


def ask_status(control: Path | None) -> DaemonStatus:
    """Request the status of the daemon at a control socket, None for the only daemon of this user.

    Raises:
        ControlError: No daemon answers.
        UsageError: None is given, and several daemons are running.
        ProtocolError: The answer can't be understood.
    """
    return answer_from_json(DaemonStatus, _ask(control, "status", timeout_s=ANSWER_S).get("status"))


def ask_reload(control: Path | None) -> Reloaded:
    """Make a daemon read its files and its store again, and return the result.

    Raises:
        RefusedError: The daemon kept what it had, with its reason.
        ControlError, UsageError, ProtocolError: As for `ask_status`.
    """
    return answer_from_json(Reloaded, _ask(control, "reload", timeout_s=RELOAD_S).get("reloaded"))


def ask_unmute(control: Path | None, clients: QuotaClient) -> Unmuted:
    """End the throttle times of clients by user, client-id or both, and return those that waited.

    Raises:
        RefusedError: The daemon does not let this user do that.
        ControlError, UsageError, ProtocolError: As for `ask_status`.
    """
    return answer_from_json(Unmuted, _ask(control, "unmute", timeout_s=ANSWER_S, **_names(clients)))


def ask_groups(control: Path | None, client: QuotaClient) -> ClientGroups:
    """Return the groups that a daemon has around a client, by its names and address.

    Raises:
        RefusedError: The daemon is of a version without groups.
        ControlError, UsageError, ProtocolError: As for `ask_status`.
    """
    answer = _ask(control, "groups", timeout_s=ANSWER_S, **_names(client))
    return answer_from_json(ClientGroups, answer.get("groups"))


def _names(client: QuotaClient) -> dict[str, str]:
    return {kind.replace("-", "_"): str(name) for kind, name in client.parts}


def _ask(control: Path | None, op: str, *, timeout_s: float, **fields: str) -> dict[str, Any]:
    path = control or find_control_path()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            sock.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
            with sock.makefile("rb") as lines:
                return _answer_on(path, lines.readline(MAX_ANSWER_BYTES))
    except OSError as error:
        raise no_daemon(path, error) from error


def _answer_on(path: Path, line: bytes) -> dict[str, Any]:
    try:
        answer = load_json(line)
    except ValueError as error:
        raise ProtocolError(f"what answers on {path} is no daemon of this kind") from error
    if not isinstance(answer, dict):
        raise ProtocolError(f"the daemon on {path} answered {answer!r}")
    if answer.get("ok") is not True:
        raise RefusedError(f"the daemon on {path}: {answer.get('error')}", hint=answer.get("hint"))
    return answer


_SUFFIX: Final = ".sock"


def runtime_folder() -> Path:
    """Return the user's own folder for files that live as long as a session."""
    import warnings  # noqa: PLC0415 - only an unchosen path needs it

    from platformdirs import user_runtime_path  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a session without such a folder gets one below /tmp
        return user_runtime_path("kafka-quotas", appauthor=False)


def control_path(port: int) -> Path:
    """Return the path for a daemon whose bootstrap listener has this port."""
    return runtime_folder() / f"daemon-{port}{_SUFFIX}"


def find_control_path(*, folder: Path | None = None) -> Path:
    """Return the control socket of the only running daemon of this user.

    Raises:
        ControlError: There is none, or the folder is one in which another user could put a socket of their own.
        UsageError: There are several.
    """
    folder = folder or runtime_folder()
    found = sorted(folder.glob(f"daemon-*{_SUFFIX}")) if folder.is_dir() else []
    if not found:
        raise ControlError(f"no daemon of yours is running (looked in {folder})", hint="name its socket with --control")
    check_folder(folder)
    if len(found) > 1:  # those that were killed leave theirs behind
        found = [path for path in found if _is_served(path)] or found[:1]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UsageError(f"several daemons are running: {names}", hint=f"name one with --control {folder}/NAME")
    return found[0]


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is too busy, or not to be asked by this user
            return True
    return True


class Who(TypedDict, total=False):
    """The client, address or topic that a request is about, and the broker at which."""

    user: str
    """Principal of the client, by default the one of clients that did not authenticate."""
    client_id: str
    """Client-id of the client, by default empty."""
    ip: str
    """Address that connects, for connections only."""
    topic: str
    """Topic that the data is for, for topics only."""
    broker: int | None
    """Node id, None for the bootstrap server's."""


class DecisionClient:
    """A connection to the daemon at a control socket, which is also a context manager.

    Raises:
        ControlError: No daemon answers, on construction or at any call.
        ProtocolError: The peer is no such daemon.
        RefusedError: The daemon does not let this user connect.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = ANSWER_S) -> None:
        self._path = Path(path)
        self._number = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
            self._lines = self._socket.makefile("rb")
            self.ask_all(())  # fails now, not at the first request, if the peer is not a daemon or refuses this user
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise no_daemon(self._path, error) from error
            raise

    def record(self, quota_type: AnyQuotaType | str, amount: float, **who: Unpack[Who]) -> Decision:
        """Charge a client with an amount and return how long it has to wait.

        Mutations, connections (which go by `ip`) and bytes for a topic (by `topic`) are charged only if there is
        nothing to wait for.

        Args:
            quota_type: Type of the quota, or its name.
            amount: In the type's unit: bytes, ms of thread time, partitions, requests, connections.
            who: Whom or what the amount is of, as `Who` has it.

        Raises:
            DecisionError: The daemon can't answer the request.
        """
        return self.ask(DecisionRequest(Operation.RECORD, _type(quota_type), amount, **who))

    def check(self, quota_type: AnyQuotaType | str, amount: float = 0, **who: Unpack[Who]) -> Decision:
        """Return how long a client would have to wait if it used an amount, without charging it.

        Takes and raises what `record` does.
        """
        return self.ask(DecisionRequest(Operation.CHECK, _type(quota_type), amount, **who))

    def unrecord(self, quota_type: AnyQuotaType | str, amount: float, **who: Unpack[Who]) -> Decision:
        """Give an amount back and return a decision without a delay.

        Takes and raises what `record` does.
        """
        return self.ask(DecisionRequest(Operation.UNRECORD, _type(quota_type), amount, **who))

    def ask(self, ask: DecisionRequest) -> Decision:
        """Return the decision on one request.

        Raises:
            DecisionError: There is none.
        """
        (decision,) = self.ask_all([ask])
        if isinstance(decision, DecisionError):
            raise decision
        return decision

    def ask_all(self, asks: Sequence[DecisionRequest]) -> list[Decision | DecisionError]:
        """Send requests in one message and return their decisions in the same order.

        Args:
            asks: At most `MAX_BATCH` requests.

        Raises:
            DecisionError: They are more than that.
            ControlError: The daemon does not answer.
            ProtocolError: The response does not match the requests.
        """
        if len(asks) > MAX_BATCH:
            raise DecisionError(f"a batch has at most {MAX_BATCH} questions")
        self._number += 1  # an answer that came too late for one call must not be taken for the next one's
        content = {"op": BATCH, "id": self._number, "items": [request_to_json(each) for each in asks]}
        try:
            with contextlib.suppress(BrokenPipeError):  # refused already: the error can still be read
                self._socket.sendall(json.dumps(content).encode() + b"\n")
            line = self._lines.readline(MAX_ANSWER_BYTES)
            if not line:
                raise ConnectionResetError("the daemon closed the connection")
        except OSError as error:
            raise no_daemon(self._path, error) from error
        answer = _answer_on(self._path, line)
        try:
            answers: Any = answer["answers"] if answer["id"] == self._number else None
            return [decision_from_json(*each) for each in zip(answers, asks, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError("the daemon answered something else than what was asked") from error

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._lines.close()
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _type(name: AnyQuotaType | str) -> AnyQuotaType:
    if not isinstance(name, str):
        return name
    if name not in ANY_QUOTA_TYPES:
        raise DecisionError(f"type is one of {', '.join(ANY_QUOTA_TYPES)}, not {name!r}")
    return ANY_QUOTA_TYPES[name]

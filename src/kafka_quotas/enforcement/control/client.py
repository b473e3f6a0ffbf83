"""Requests to a daemon over its Unix socket: for its status, to reload, or to end throttle times.

Default paths of control sockets: in the user's runtime folder, one per listening port.
"""

import json
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.enforcement.control.server import ControlError, check_folder, no_daemon
from kafka_quotas.enforcement.quotas.reload import Reloaded, reloaded_from_json
from kafka_quotas.enforcement.session.unmute import ClientChoice, Unmuted, unmuted_from_json
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, status_from_json

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
    return status_from_json(_ask(control, "status", timeout_s=ANSWER_S).get("status"))


def ask_reload(control: Path | None) -> Reloaded:
    """Make a daemon read its files and its store again, and return the result.

    Raises:
        RefusedError: The daemon kept what it had, with its reason.
        ControlError, UsageError, ProtocolError: As for `ask_status`.
    """
    return reloaded_from_json(_ask(control, "reload", timeout_s=RELOAD_S).get("reloaded"))


def ask_unmute(control: Path | None, choice: ClientChoice) -> Unmuted:
    """End the throttle times of some clients of a daemon, and return those that waited.

    Raises:
        RefusedError: The daemon does not let this user do that.
        ControlError, UsageError, ProtocolError: As for `ask_status`.
    """
    return unmuted_from_json(_ask(control, "unmute", timeout_s=ANSWER_S, **asdict(choice)))


def _ask(control: Path | None, op: str, *, timeout_s: float, **fields: str | None) -> dict[str, Any]:
    path = control or find_control_path()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            sock.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
            with sock.makefile("rb") as lines:
                answer = load_json(lines.readline(MAX_ANSWER_BYTES))
    except OSError as error:
        raise no_daemon(path, error) from error
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

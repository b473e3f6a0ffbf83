"""`daemon run`, `status`, `reload`, `unmute` and `decide` as functions: arguments in, a frozen result out."""

from pathlib import Path
from typing import TextIO

from kafka_quotas.enforcement.control_client import ask_reload, ask_status, ask_unmute
from kafka_quotas.enforcement.control_path import find_control_path
from kafka_quotas.enforcement.daemon import DaemonResult, run_daemon
from kafka_quotas.enforcement.decision import Ask, Decision
from kafka_quotas.enforcement.decision_client import DecisionClient
from kafka_quotas.enforcement.reload import Reloaded
from kafka_quotas.enforcement.settings import DaemonSettings
from kafka_quotas.enforcement.status import DaemonStatus
from kafka_quotas.enforcement.store_follower import OpenStore
from kafka_quotas.enforcement.unmute import ClientChoice, Unmuted


def run(settings: DaemonSettings, open_store: OpenStore, *, log: TextIO) -> DaemonResult:
    """How the daemon ended, after a signal told it to; meanwhile it writes its log, a line per event.

    Raises `KafkaQuotasError` where it can't start.
    """
    return run_daemon(settings, open_store, log=log)


def status(control: Path | None) -> DaemonStatus:
    """What the daemon behind a control socket tells; None asks the only one that this user runs.

    Raises `ControlError` where none answers, `UsageError` where there are several to choose from.
    """
    return ask_status(find_control_path() if control is None else control)


def reload(control: Path | None) -> Reloaded:
    """What it came to that the daemon behind a control socket read its files and its store anew.

    Raises `RefusedError` where a file can't be used and the daemon keeps what it had, `ControlError` and `UsageError`
    as `status` does.
    """
    return ask_reload(find_control_path() if control is None else control)


def unmute(control: Path | None, choice: ClientChoice) -> Unmuted:
    """End the throttle times of clients of the daemon behind a control socket, and return those that waited.

    Raises:
        RefusedError: The daemon does not let this user do that.
        ControlError: No daemon answers.
        UsageError: There are several daemons, and none was chosen.
    """
    return ask_unmute(find_control_path() if control is None else control, choice)


def decide(control: Path | None, ask: Ask) -> Decision:
    """What the daemon behind a control socket says to one question.

    Raises `DecisionError` where it can't be answered, `ControlError` and `UsageError` as `status` does.
    """
    with DecisionClient(find_control_path() if control is None else control) as client:
        return client.ask(ask)

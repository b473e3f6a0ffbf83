"""`daemon run` and `daemon status` as functions: settings in, a frozen result out."""

from pathlib import Path
from typing import TextIO

from kafka_quotas.enforcement.control import ask_status
from kafka_quotas.enforcement.control_path import find_control_path
from kafka_quotas.enforcement.daemon import DaemonResult, run_daemon
from kafka_quotas.enforcement.settings import DaemonSettings
from kafka_quotas.enforcement.status import DaemonStatus
from kafka_quotas.enforcement.store_follower import OpenStore


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

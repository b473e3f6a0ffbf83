"""One worker as its parent sees it: the process, and the two connections to it."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionSlot
from kafka_quotas.enforcement.workers.channel import Channel
from kafka_quotas.enforcement.workers.protocol import WorkerTotals
from kafka_quotas.enforcement.workers.shared_charges import WaitingClients

PROGRAM: Final = "from kafka_quotas.enforcement.daemon.run import run_worker; run_worker()"


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerProcess:
    """A worker's process, its connections to the parent, and what it serves."""

    number: int
    """Number of the worker, which its successor has as well."""
    starts: int
    """How often a worker of this number was started."""
    process: "subprocess.Popen[bytes]"
    started_s: float
    """Time of its start, by the event loop's clock."""
    channel: Channel = field(init=False)
    questions: Channel = field(init=False)
    """Connection for questions that the worker waits for."""
    slots: dict[int, ConnectionSlot] = field(default_factory=dict)
    """The places of its connections in the counts, by their numbers."""
    answers: "dict[int, asyncio.Future[object]]" = field(default_factory=dict)
    """Requests that it has not answered yet."""
    totals: WorkerTotals = field(default_factory=WorkerTotals)
    """Its latest counters."""
    silent_s: float = 0.0
    """Seconds since its last message."""
    waiting: tuple[WaitingClients, ...] = ()
    """Its throttled clients."""
    is_ready: bool = False
    cut_connections: int = 0


OnMessage: TypeAlias = Callable[[WorkerProcess, Any, list[socket.socket]], None]


def start_process(
    loop: asyncio.AbstractEventLoop,
    number: int,
    starts: int,
    *,
    on_message: OnMessage,
    on_question: OnMessage,
    on_closed: Callable[[WorkerProcess], None],
) -> WorkerProcess:
    """Start the process of a worker, which waits for its first message.

    Args:
        loop: The parent's event loop.
        number: Number of the worker.
        starts: How often a worker of this number was started, this time included.
        on_message: Called with each message of the worker.
        on_question: Called with each question that the worker waits for.
        on_closed: Called when the process has ended.
    """
    ours, theirs = socket.socketpair()
    questions, asks = socket.socketpair()
    with theirs, asks:
        fds = (theirs.fileno(), asks.fileno())
        command = [sys.executable, "-c", PROGRAM, *map(str, fds)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)  # noqa: S603 - this program
    worker = WorkerProcess(number=number, starts=starts, process=process, started_s=loop.time())
    worker.channel = Channel(
        loop,
        ours,
        on_message=lambda message, sockets: on_message(worker, message, sockets),
        on_closed=lambda: on_closed(worker),
    )
    worker.questions = Channel(
        loop,
        questions,
        on_message=lambda message, sockets: on_question(worker, message, sockets),
        on_closed=lambda: None,
    )
    return worker


def worker_settings(settings: DaemonSettings) -> DaemonSettings:
    """Return a daemon's settings as one of its workers has them."""
    return replace(
        settings,
        workers=1,
        connection_rate=None,
        max_connections=None,
        queued_max_request_bytes=max(1, settings.queued_max_request_bytes // settings.workers),
    )

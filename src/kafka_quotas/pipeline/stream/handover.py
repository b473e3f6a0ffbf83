"""Batches of a stream at a Spark Connect server, which hands each of them to the command.

There Spark calls the function of a stream in a process of the server, which has nothing of this package. That process
and the command share a session: the function makes the batch a view of it, and waits until the command has processed
the view. So the command does on either kind of session the same.

Contract: a function that sees no sign of life of the command fails, and ends the query with it.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.progress import run_watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TakeBatch = Callable[["DataFrame", int], None]

VIEW: Final = "kafka_quotas_batch"
"""Name of the view of a batch."""
OFFERED, TAKEN, SIGN = "kafka-quotas.offered", "kafka-quotas.taken", "kafka-quotas.sign"
"""Properties of the session: the batch in the view, the batch that is processed, and what changes while it is."""
_SILENCE_S: Final = 120.0
"""How long a command may be silent, on a machine that is busy."""
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 600.0
"""How long a server may be too busy to start Python."""
_LATE: Final = ("Python worker failed to connect back", "waiting for the Python worker to connect back")
"""What a server says whose Python needs more than ten seconds to load PySpark, a time that no setting changes."""


def offering(silence_s: float = _SILENCE_S) -> TakeBatch:
    """Return the function that a server calls for each batch.

    It fails with a `TimeoutError` once the command is silent for longer than `silence_s` seconds.
    """

    def offer(frame: "DataFrame", batch_id: int) -> None:  # inside, so that it is sent with all that it needs
        session = frame.sparkSession
        frame.createOrReplaceTempView(VIEW)
        session.conf.set(OFFERED, str(batch_id))
        seen, seen_s = None, time.monotonic()
        while session.conf.get(TAKEN, None) != str(batch_id):
            sign, now_s = session.conf.get(SIGN, None), time.monotonic()
            if sign != seen:
                seen, seen_s = sign, now_s
            elif now_s - seen_s > silence_s:
                raise TimeoutError("the command that started the stream is gone")
            time.sleep(_POLL_S)

    return offer


def start_again(
    start: "Callable[[], StreamingQuery]", stop: threading.Event, patience_s: float = _PATIENCE_S
) -> "StreamingQuery":
    """Start a stream, again for as long as the server is too slow to start the process for its function.

    Raises:
        KafkaQuotasError: It is too slow for longer than `patience_s` seconds, or until `stop` is set.
    """
    begun_s = time.monotonic()
    while True:
        try:
            return start()
        except Exception as error:  # gRPC's and Spark's own, of many classes
            if not any(late in str(error) for late in _LATE):
                raise
            if stop.is_set() or time.monotonic() - begun_s > patience_s:
                raise KafkaQuotasError(
                    "the Connect server was too busy to start Python, which Spark gives ten seconds",
                    hint="start the stream again when the server's machine has less to do",
                ) from error


class OfferedBatches:
    """Processes the batches that a server offers in a session."""

    def __init__(self, session: "SparkSession", take: TakeBatch) -> None:
        self._session = session
        self._take = take
        self._signs = count()
        self._taken: str | None = None

    def poll(self) -> None:
        """Give a sign of life, and process the batch that is offered, if there is a new one."""
        self._sign()
        offered = self._session.conf.get(OFFERED, None)
        if offered is None or offered == self._taken:
            return
        process = partial(self._take, self._session.table(VIEW), int(offered))
        run_watched(self._session, process, stage="stream", watch=lambda _: self._sign())
        self._session.conf.set(TAKEN, offered)
        self._taken = offered

    def _sign(self) -> None:
        self._session.conf.set(SIGN, str(next(self._signs)))

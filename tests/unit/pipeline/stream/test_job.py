"""Batches that pass from a process of a Connect server to the command, by a session that both have."""

import sys
import threading
from typing import Any

import pytest
from pyspark import cloudpickle

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.stream.job import OfferedBatches, offering, start_again


class Session:
    """The properties and views of a session."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.views: dict[str, Any] = {}
        self.conf = self

    def get(self, name: str, default: str | None) -> str | None:
        return self.properties.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.properties[name] = value

    def table(self, name: str) -> Any:
        return self.views[name]


Session.__module__ = "pyspark.sql.connect.session"  # by which sessions of Connect are known


class Frame:
    """A batch of a session."""

    def __init__(self, session: Session) -> None:
        self.sparkSession = session

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802 - as Spark calls it
        self.sparkSession.views[name] = self


def sent(monkeypatch: pytest.MonkeyPatch, silence_s: float) -> Any:
    """The function as a server gets it, which has no module of this package."""
    content = cloudpickle.dumps(offering(silence_s))
    for name in [name for name in sys.modules if name.partition(".")[0] == "kafka_quotas"]:
        monkeypatch.setitem(sys.modules, name, None)
    return cloudpickle.loads(content)


def test_each_batch_is_processed_once_while_its_function_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session()
    frames = [Frame(session) for _ in range(3)]
    found: list[tuple[Any, int]] = []
    after: list[int] = []
    batches = OfferedBatches(session, lambda frame, batch_id: found.append((frame, batch_id)))
    offer = sent(monkeypatch, 60.0)

    def run() -> None:
        for batch_id, frame in enumerate(frames):
            offer(frame, batch_id)
            after.append(len(found))

    batches.poll()
    assert not found
    server = threading.Thread(target=run)
    server.start()
    while server.is_alive():
        batches.poll()
    assert found == [(frame, batch_id) for batch_id, frame in enumerate(frames)]
    assert after == [1, 2, 3]


def test_a_function_whose_command_is_silent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError, match="the command that started the stream is gone"):
        sent(monkeypatch, 0.0)(Frame(Session()), 0)


def test_a_batch_that_fails_stays_offered() -> None:
    session: Any = Session()

    def fail(_: Any, __: int) -> None:
        raise OSError("full")

    batches = OfferedBatches(session, fail)
    Frame(session).createOrReplaceTempView("kafka_quotas_batch")
    session.set("kafka-quotas.offered", "7")
    with pytest.raises(OSError, match="full"):
        batches.poll()
    assert "kafka-quotas.taken" not in session.properties


def test_a_stream_starts_again_while_the_servers_python_is_slow() -> None:
    late = RuntimeError("[X] Python worker failed to connect back. SQLSTATE: 1")
    outcomes: list[Any] = [*[late] * 20, "query"]

    def start() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    stop = threading.Event()
    assert start_again(start, stop) == "query"
    outcomes += [RuntimeError("no such source"), "query"]
    with pytest.raises(RuntimeError, match="no such source"):
        start_again(start, stop)
    assert outcomes == ["query"]
    outcomes[:0] = [late, late]
    with pytest.raises(KafkaQuotasError, match="too busy to start Python"):
        start_again(start, stop, patience_s=-1.0)
    stop.set()
    with pytest.raises(KafkaQuotasError, match="too busy to start Python"):
        start_again(start, stop)
    assert outcomes == ["query"]

"""The event log: what a session tells, the line that is made of it, the files, and what happens when they fail."""

import errno
import fcntl
import json
import re
import resource
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.frames.enforcement import Pair, fetch, fetch_response, produce, produce_response

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address, TopicTarget, parse_topic
from kafka_quotas.enforcement.config.settings import EventLogSettings
from kafka_quotas.enforcement.event_log import charges as event_log_line
from kafka_quotas.enforcement.event_log.charges import (
    SLICE,
    Charge,
    ChargeQueue,
    ChargeSource,
    EventLogWriter,
    charge_line,
)
from kafka_quotas.enforcement.event_log.sinks import EventFiles, EventLogError, EventTopic
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.enforcement.telemetry.log import LogEvent

ROUTE = Route(node_id=1, port=1, upstream=Address(host="h", port=1))
SOURCE = ChargeSource(connection=17, ip="10.0.0.7", route=ROUTE)
FIELDS = [
    "v",
    "ts_ms",
    "cluster",
    "broker_id",
    "connection",
    "user",
    "client_id",
    "ip",
    "quota_type",
    "api_key",
    "bytes",
    "thread_ms",
    "mutations",
    "throttle_ms",
    "is_exempt",
]
"""Every field of a line, in order."""
PRODUCED: Charge = (1_700_000_000_123, "alice", "app", QuotaType.PRODUCE, 0, 65600, 120, False)


def test_a_session_tells_every_charge_with_its_throttle_time() -> None:
    told: list[Charge] = []
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, on_charge=told.append)
    pair.exchange(produce(1, size=5004), produce_response(1))
    pair.advance(3000)
    pair.send(fetch(2))
    answer = fetch_response(2, size=700)
    pair.answer(answer)
    assert told[0] == (pair.now_ms - 3000, "ANONYMOUS", "app", QuotaType.PRODUCE, 0, 5000, 3000, False)
    assert told[1] == (pair.now_ms, "ANONYMOUS", "app", QuotaType.FETCH, 1, len(answer) - 4, 0, False)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("quota_type", "amount", "column", "value"),
    [
        (QuotaType.PRODUCE, 65600, "bytes", 65600),
        (QuotaType.FETCH, 3_000_000_000, "bytes", 3_000_000_000),
        (QuotaType.REQUEST, 0.21875, "thread_ms", 0.21875),
        (QuotaType.CONTROLLER_MUTATION, 12, "mutations", 12),
    ],
)
def test_a_line_has_every_field_and_one_figure(quota_type: QuotaType, amount: float, column: str, value: float) -> None:
    line = charge_line("c", SOURCE, (5, "u", "a", quota_type, 3, amount, 0, True))
    assert line.endswith("}\n")
    data = json.loads(line)
    assert list(data) == FIELDS
    assert {name: data[name] for name in ("bytes", "thread_ms", "mutations") if data[name]} == {column: value}
    assert (data["quota_type"], data["api_key"], data["is_exempt"]) == (quota_type.value, 3, True)


def test_a_line_is_one_line_of_ascii_whatever_the_names_are() -> None:
    odd = 'a"\n\\é\u2028\udc80}'
    line = charge_line(odd, ChargeSource(connection=1, ip="::1", route=ROUTE), (1, odd, odd, *PRODUCED[3:]))
    assert line.isascii()
    assert line.count("\n") == 1
    data = json.loads(line)
    assert (data["cluster"], data["user"], data["client_id"]) == (odd, odd, odd)


def test_the_broker_of_a_line_is_null_until_it_is_known() -> None:
    route = Route(node_id=None, port=1, upstream=ROUTE.upstream)
    source = ChargeSource(connection=1, ip="::1", route=route)
    assert json.loads(charge_line("c", source, PRODUCED))["broker_id"] is None
    route.node_id = 7
    assert json.loads(charge_line("c", source, PRODUCED))["broker_id"] == 7


def test_the_page_on_the_daemon_describes_every_field_of_a_line() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "event-log.md").read_text(encoding="utf-8")
    told = [name for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE) for name in row.split(", ")]
    # The table has the names of the client together.
    at = FIELDS.index("connection") + 1
    who = ["user", "client_id", "ip"]
    assert [name.strip("`") for name in told] == [
        *FIELDS[:at],
        *who,
        *(name for name in FIELDS[at:] if name not in who),
    ]
    example = next(line for line in page.splitlines() if line.startswith('{"v"'))
    assert list(json.loads(example)) == FIELDS


def test_what_does_not_fit_is_counted() -> None:
    charges = ChargeQueue(limit=3)
    record = charges.recorder(SOURCE)
    for _ in range(5):
        record(PRODUCED)
    assert (len(charges), charges.dropped) == (3, 2)
    assert charges.take(2) == [(SOURCE, PRODUCED)] * 2
    record(PRODUCED)
    assert (len(charges), charges.dropped) == (2, 2)


def test_long_names_fill_the_queue_by_their_bytes() -> None:
    charges = ChargeQueue(limit_bytes=1_000_000)
    record = charges.recorder(SOURCE)
    long_named: list[Charge] = [(0, "mallory", f"{i:032767}", QuotaType.PRODUCE, 0, 1.0, 0, False) for i in range(100)]
    for each in long_named:
        record(each)
    assert (len(charges), charges.dropped) == (30, 70), "30 times 33 kB is all that there is room for"
    assert charges.size_bytes <= 1_000_000
    charges.take(30)
    assert charges.size_bytes == 0
    record((0, "mallory", "\N{SNOWMAN}" * 32767, QuotaType.PRODUCE, 0, 1.0, 0, False))
    assert charges.size_bytes > 4 * 32767, "a character beyond ASCII may take four bytes"


def test_the_spelling_of_a_long_name_is_not_remembered() -> None:
    event_log_line._cached_json.cache_clear()
    charge: Charge = (0, "mallory", "n" * 32767, QuotaType.PRODUCE, 0, 1.0, 0, False)
    assert charge_line("c", SOURCE, charge).count("n" * 32767) == 1
    assert event_log_line._cached_json.cache_info().currsize == 3, "the cluster, the user and the address"


def files(folder: Path, suffix: str) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob(f"events-*{suffix}"))]


def test_files_are_whole_when_they_are_large_or_old_enough(tmp_path: Path) -> None:
    now_s = [0.0]
    sink = EventFiles(EventLogSettings(target=tmp_path, rotate_bytes=8, rotate_s=60), monotonic_s=lambda: now_s[0])
    assert sink.write(["one\n"]) == 1
    assert (files(tmp_path, ".jsonl"), files(tmp_path, ".part")) == ([], ["one\n"])
    sink.write(["two\n"])
    assert (files(tmp_path, ".jsonl"), files(tmp_path, ".part")) == (["one\ntwo\n"], [])
    sink.write(["3\n"])
    now_s[0] = 59.0
    sink.settle()
    assert files(tmp_path, ".part") == ["3\n"]
    now_s[0] = 60.0
    sink.settle()
    assert files(tmp_path, ".jsonl") == ["one\ntwo\n", "3\n"]
    sink.close()


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    sink = EventFiles(EventLogSettings(target=tmp_path, rotate_bytes=1, keep_bytes=10))
    for number in range(6):
        sink.write([f"{number}23\n"])
    assert files(tmp_path, ".jsonl") == ["423\n", "523\n"]


def test_what_a_killed_daemon_left_is_made_whole_and_a_living_ones_is_not(tmp_path: Path) -> None:
    (tmp_path / "events-1.jsonl.part").write_text('{"a":1}\n{"a":2}\n{"a')
    (tmp_path / "events-2.jsonl.part").write_text("torn" * 50_000)
    living = tmp_path / "events-3.jsonl.part"
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        EventFiles(EventLogSettings(target=tmp_path))
    assert files(tmp_path, ".jsonl") == ['{"a":1}\n{"a":2}\n']
    assert list(tmp_path.glob("*.part")) == [living]


def test_nobody_but_owner_and_group_can_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    left = folder / "events-1.jsonl.part"
    left.write_text("{}\n")
    left.chmod(0o644)
    sink = EventFiles(EventLogSettings(target=folder, rotate_bytes=8))
    sink.write(["whole\n" * 2])
    sink.write(["grows\n"])
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes) == {".jsonl", ".part"}
    assert not [path for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) & ~0o640]
    sink.close()
    made = EventFiles(EventLogSettings(target=tmp_path / "made"))
    made.close()
    assert not stat.S_IMODE((tmp_path / "made").stat().st_mode) & 0o027


@contextmanager
def disk_that_ends_after(size: int) -> Iterator[None]:
    """No file of this process grows beyond this size: the kernel writes what fits, and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("room", "written"), [(35, 3), (30, 3), (29, 2)])
def test_lines_that_a_full_disk_cuts_off_are_not_in_the_file_and_do_not_count(
    tmp_path: Path, room: int, written: int
) -> None:
    files, lines = EventFiles(EventLogSettings(target=tmp_path)), ["123456789\n"] * 4
    with disk_that_ends_after(room):
        assert files.write(lines) == written
    assert [path.read_text() for path in tmp_path.glob("*.jsonl")] == ["123456789\n" * written]
    with disk_that_ends_after(9), pytest.raises(EventLogError, match="File too large"):
        files.write(lines)
    assert files.write(lines) == 4
    files.close()
    assert sum(path.read_text().count("\n") for path in tmp_path.iterdir()) == written + 4


def test_a_folder_that_can_not_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EventLogError, match="can't write the event log"):
        EventFiles(EventLogSettings(target=tmp_path / "file" / "sub"))


class Sink:
    """A sink that takes, refuses or takes in part, as it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.takes = SLICE
        self.error: OSError | None = None
        self.closed = False

    def write(self, lines: list[str]) -> int:
        if self.error is not None:
            raise EventLogError("no") from self.error
        self.lines += lines[: self.takes]
        return min(self.takes, len(lines))

    def settle(self) -> None:
        assert not self.closed

    def close(self) -> None:
        self.closed = True


def writer(sink: Sink, said: list[LogEvent]) -> EventLogWriter:
    settings = EventLogSettings(target=Path("unused"), cluster="c")
    return EventLogWriter(settings, notify=said.append, sink=sink)


def test_the_writer_writes_what_is_left_when_it_is_closed() -> None:
    sink, said = Sink(), []
    events = writer(sink, said)
    record = events.charges.recorder(SOURCE)
    for _ in range(3 * SLICE + 1):
        record(PRODUCED)
    events.start()
    events.close()
    assert len(sink.lines) == events.written == 3 * SLICE + 1
    assert (events.dropped, sink.closed, said) == (0, True, [])


def test_a_sink_that_fails_costs_lines_that_are_counted_and_is_said_once() -> None:
    sink, said = Sink(), []
    events = writer(sink, said)
    record = events.charges.recorder(SOURCE)

    def write(count: int) -> None:
        for _ in range(count):
            record(PRODUCED)
        events._write_pending()

    sink.error = OSError(errno.ENOSPC, "No space left on device")
    write(5)
    write(5)
    assert (events.written, events.dropped) == (0, 10)
    sink.error, sink.takes = None, 2
    write(5)
    assert (events.written, events.dropped) == (2, 13)
    sink.takes = SLICE
    write(1)
    assert (events.written, events.dropped) == (3, 13)
    assert [notice.event for notice in said] == [
        "event log can't be written; events are lost until it can",
        "event log is written again",
    ]


def test_topics() -> None:
    target = parse_topic("kafka://h:1,i:2/events")
    assert (target.bootstrap, target.topic, str(target)) == ("h:1,i:2", "events", "kafka://h:1,i:2/events")
    for text in ("kafka://", "kafka://h:1", "kafka://h:1/", "kafka:///t", "kafka://h:1/a/b", "h:1/t"):
        with pytest.raises(UsageError, match="not a topic"):
            parse_topic(text)


class BrokenProducer:
    """A producer that takes some lines and then breaks off for a reason, for good or not."""

    made: ClassVar[int] = 0
    reasons: ClassVar[list[KafkaError]] = []

    def __init__(self, properties: dict[str, object]) -> None:
        del properties
        self.taken: list[str] = []
        type(self).made += 1

    def produce(self, topic: str, value: str, **options: object) -> None:
        del topic, options
        if len(self.taken) >= 2 and self.reasons:
            raise KafkaException(self.reasons[0])
        self.taken.append(value)

    def poll(self, timeout_s: float) -> int:
        del timeout_s
        return 0

    def purge(self) -> None:
        pass

    def flush(self, timeout_s: float) -> int:
        del timeout_s
        return 0


@pytest.mark.parametrize("fatal", [False, True])
def test_a_topic_that_can_not_be_written_costs_lines_and_no_more(
    monkeypatch: pytest.MonkeyPatch, *, fatal: bool
) -> None:
    monkeypatch.setattr(BrokenProducer, "made", 0)
    reasons = [KafkaError(KafkaError._FATAL if fatal else KafkaError._UNKNOWN_TOPIC, "broke off", fatal=fatal)]
    monkeypatch.setattr(BrokenProducer, "reasons", reasons)
    monkeypatch.setattr("confluent_kafka.Producer", BrokenProducer)
    topic = EventTopic(TopicTarget(bootstrap="127.0.0.1:1", topic="events"))
    lines = ['{"v":1,"broker_id":1,"user":"u","client_id":"c","ip":"i"}\n'] * 3
    assert topic.write(lines) == 2, "what was taken is, and the rest is lost"
    with pytest.raises(EventLogError, match="broke off"):
        topic.write(lines)
    assert BrokenProducer.made == 1 + fatal, "a producer that broke off for good has a successor"
    reasons.clear()
    assert topic.write(lines) == 3


def test_a_closed_topic_leaves_nothing_of_its_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks of undelivered records kept the producer, whose threads ran while the process ended."""
    monkeypatch.setattr("kafka_quotas.enforcement.event_log.sinks._FLUSH_S", 0.0)
    topic = EventTopic(TopicTarget(bootstrap="127.0.0.1:1", topic="events"))
    assert topic.write(['{"v":1,"broker_id":1,"user":"u","client_id":"c","ip":"i"}\n']) == 1
    topic.close()
    left = weakref.ref(topic)
    del topic
    assert left() is None

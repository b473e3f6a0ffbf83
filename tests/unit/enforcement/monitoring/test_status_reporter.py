"""What the daemon says about itself: routes, log lines, ledger, status, metrics."""

import asyncio
import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.statuses import bucket_row, daemon_status, fleet_row, throttle_row, waiting_client
from tests.support.daemon.whole_run import run_whole

from kafka_quotas.core.errors import ProtocolError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.address import Address, parse_address
from kafka_quotas.enforcement.monitoring.endpoints import QUOTA_FAMILIES, Readiness, exposition, families
from kafka_quotas.enforcement.monitoring.endpoints import readiness as readiness_of
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.telemetry import throttle_stats as ledger_module
from kafka_quotas.enforcement.telemetry.log import LINES_PER_SECOND, Log, LogEvent, LogFormat, LogLevel
from kafka_quotas.enforcement.telemetry.status import (
    DaemonStatus,
    ListenerRow,
    QuotaTotals,
    WorkerRow,
    answer_from_json,
    status_text,
)
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats

FIRST = Address(host="broker-1", port=9092)
SECOND = Address(host="broker-2", port=9092)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("localhost:1", "localhost", 1), ("[::1]:9092", "::1", 9092), (" 1.2.3.4:65535 ", "1.2.3.4", 65535)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert (address.host, address.port) == (host, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "::1:80", "a b:1", "http://h:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a host:port"):
        parse_address(text)


def test_a_notice_is_one_line_whatever_a_client_sent() -> None:
    notice = LogEvent(event="e", fields={"plain": "a-b", "n": 3, "odd": 'x="1"\n\x1b[31m é', "empty": ""})
    assert str(notice) == 'e plain=a-b n=3 odd="x=\\"1\\"\\n\\x1b[31m é" empty=""'
    assert str(notice).isprintable()


def test_the_log_has_time_severity_and_event() -> None:
    stream = io.StringIO()
    log = Log(stream, VirtualClock(1_700_000_000_123))
    log.notify(LogEvent(event="something happened", level=LogLevel.WARNING, fields={"who": "me"}))
    assert stream.getvalue() == "2023-11-14T22:13:20.123Z warning something happened who=me\n"


def test_a_flood_of_one_event_is_cut_counted_and_hides_no_other() -> None:
    stream, clock = io.StringIO(), VirtualClock(1_700_000_000_000)
    log = Log(stream, clock)
    for _ in range(LINES_PER_SECOND + 5):
        log.notify(LogEvent(event="flood"))
    log.notify(LogEvent(event="other"))
    assert stream.getvalue().count("flood") == LINES_PER_SECOND
    assert "other" in stream.getvalue()
    clock.advance(1000)
    log.notify(LogEvent(event="flood"))
    assert stream.getvalue().endswith("flood left_out=5\n")


def test_a_log_that_nobody_reads_any_more_stops_nothing() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    Log(Broken(), VirtualClock()).notify(LogEvent(event="x"))


def test_the_ledger_counts_each_bucket_and_says_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_BUCKETS", 2)
    said: list[LogEvent] = []
    ledger = ThrottleStats(said.append)
    manager = ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow())
    manager.limits.update(Entity.of(client_id=None), 1.0)
    for client in ("a", "a", "b", "c", "d"):
        ledger.throttled(manager.limiter("u", client), 10, 1000)
    counts = {bucket: (count.times, count.total_ms) for (_, bucket), count in ledger.set_here.by_bucket.items()}
    assert counts == {("", "c"): (1, 10), ("", "d"): (1, 10)}
    others, total = ledger.set_here.others[QuotaType.PRODUCE], ledger.set_here.totals[QuotaType.PRODUCE]
    assert (others.times, others.total_ms, total.times, total.total_ms) == (3, 30, 5, 50)
    assert [notice.fields["client_id"] for notice in said] == ["a", "b", "c", "d"]
    assert ledger.set_upstream.by_bucket == {}


def status() -> DaemonStatus:
    return daemon_status(
        connections=3,
        listeners=(ListenerRow(broker="1", listen="127.0.0.1:1", upstream="h:1", connections=3),),
        throttled=(waiting_client(connections=2),),
        buckets=(bucket_row(client_id='a"\n'),),
        throttles=(throttle_row(client_id="a", times=4, total_ms=2000, upstream_total_ms=7),),
        quota_totals=(
            QuotaTotals(quota="producer_byte_rate", waiting=2, times=4, total_ms=2000, upstream_times=1),
            QuotaTotals(quota="consumer_byte_rate"),
        ),
        bucket_count=7,
    )


def test_a_status_survives_json_and_newer_fields() -> None:
    data = asdict(status())
    assert json.loads(run_whole(status_text(status()))) == json.loads(json.dumps(data))
    data["added_later"] = 1
    assert answer_from_json(DaemonStatus, data) == status()
    del data["quota_totals"]
    assert answer_from_json(DaemonStatus, data) == replace(status(), quota_totals=())


@pytest.mark.parametrize("data", [None, {}, [], {"pid": 1}])
def test_what_is_no_status_is_told(data: object) -> None:
    with pytest.raises(ProtocolError):
        answer_from_json(DaemonStatus, data)


def test_the_metrics_have_kafkas_names_and_escape_labels() -> None:
    text = run_whole(exposition(families(status(), is_ready=True))).decode()
    assert 'kafka_server_produce_byte_rate{broker="1",client_id="a\\"\\n",mode="kafka",user=""} 150.0\n' in text
    assert 'kafka_server_produce_byte_rate_limit{broker="1",client_id="a\\"\\n",mode="kafka",user=""} 100.0\n' in text
    assert "kafka_server_produce_queue_size 2.0\n" in text
    assert "kafka_server_fetch_queue_size 0.0\n" in text
    assert "kafka_server_produce_throttle_time_ms_total 2000.0\n" in text
    assert "kafka_server_produce_upstream_throttles_total 1.0\n" in text
    assert "kafka_quotas_store_age_seconds 0.25\n" in text
    assert "kafka_quotas_buckets 7.0\n" in text
    assert "kafka_quotas_ready 1.0\n" in text
    assert "# TYPE kafka_quotas_requests_total counter" in text or "# TYPE kafka_quotas_requests counter" in text
    assert "process_resident_memory_bytes" in text


PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


FLEET = fleet_row(
    not_trusted=1,
    strangers=("three:9192: its reports are not signed",),
    signs=True,
    signing=("two:9192",),
    refused={"unsigned": 4},
    cut_off=True,
    trouble="no broker",
    shared_buckets=3,
    published_bytes=100,
    received_bytes=200,
)


WORKER = WorkerRow(number=1, pid=7, connections=3, starts=2)


def test_the_status_of_a_fleet_crosses_the_control_socket() -> None:
    written = replace(status(), fleet=FLEET, workers=(WORKER,))
    assert answer_from_json(DaemonStatus, json.loads(run_whole(status_text(written)))) == written


def served() -> dict[str, frozenset[str]]:
    """Every metric that is served, with its labels, when there is a bucket of every quota type."""
    (bucket,) = status().buckets
    buckets = tuple(replace(bucket, quota=quota) for quota in (*QUOTA_FAMILIES, "connection_creation_rate"))
    full = replace(status(), buckets=buckets, fleet=FLEET, workers=(WORKER,), state_age_ms=1)
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: frozenset(family.samples[0].labels)
        for family in families(full, is_ready=True)
    }


QUOTA_TYPES = ("produce", "fetch", "request", "controllermutation", "requestrate")


def on_the_page() -> dict[str, frozenset[str]]:
    """The names in the first cells of the page's rows, with the labels that the row or its section has.

    Another test has those of the exporter.
    """
    found: dict[str, frozenset[str]] = {}
    for section in PAGE.split("\n## The exporter\n")[0].split("\n## "):
        labels = {"broker", "user", "client_id", "mode"} if section.startswith("Per bucket") else set()
        for cell, others in re.findall(r"^\| (`kafka_[^|]+?) \|(.*)\|$", section, re.MULTILINE):
            assert others.split("|")[-1].strip(), f"{cell} has no unit"
            own = set(re.findall(r"by `(\w+)`", cell))
            for name in set(re.findall(r"`(\w+)`", cell)) - own:
                kinds = QUOTA_TYPES if "TYPE" in name else ("",)
                found |= {name.replace("TYPE", kind): frozenset(labels | own) for kind in kinds}
    return found


def test_the_page_on_metrics_names_every_one_with_its_labels_and_no_other() -> None:
    assert on_the_page() == served()


def test_what_the_page_says_of_kafkas_names_is_how_ours_are_made() -> None:
    rows = re.findall(r"^\| `(kafka_server_\w+)` \| `kafka.server:type=(\w+)[^`]*` `([\w-]+)` \|", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for ours, kind, attribute in rows:
        assert ours == f"kafka_server_{kind.lower()}_{attribute.replace('-', '_')}"
    ((all_kinds, attribute),) = re.findall(r"^\| (`kafka_server.*`) \| the type's `([\w-]+)` \|", PAGE, re.MULTILINE)
    own = [f"kafka_server_{kind}_{attribute.replace('-', '_')}" for kind in QUOTA_TYPES]
    assert re.findall(r"\w+", all_kinds) == own


def told(full: DaemonStatus, name: str) -> dict[str, float]:
    """The figures of one metric by client-id."""
    (family,) = (each for each in families(full, is_ready=True) if each.name == name)
    return {sample.labels["client_id"]: sample.value for sample in family.samples}


def test_a_bucket_tells_its_throttle_times_average_and_its_mutations() -> None:
    (bucket,) = status().buckets
    mutations = replace(bucket, quota="controller_mutation_rate", observed=-7.0, mutation_rate=2.5, throttle_ms=125.5)
    rate = replace(mutations, client_id="b", observed=4.0, mutation_rate=None, throttle_ms=0.0)
    full = replace(status(), buckets=(replace(bucket, throttle_ms=500.0), mutations, rate))
    name = bucket.client_id
    assert told(full, "kafka_server_produce_throttle_time") == {name: 500.0}
    assert told(full, "kafka_server_controllermutation_throttle_time") == {name: 125.5, "b": 0.0}
    assert told(full, "kafka_server_controllermutation_tokens") == {name: -7.0, "b": 4.0}
    assert told(full, "kafka_server_controllermutation_mutation_rate") == {name: 2.5, "b": 4.0}


def test_groups_have_the_series_of_buckets_and_guaranteed_rates_no_utilization() -> None:
    limit = bucket_row(user=":group", client_id="payments", mode="smooth")
    rows = (limit, replace(limit, user=":guaranteed", client_id="payments/checkout"))
    full = replace(status(), buckets=(*rows, replace(limit, quota="connection_creation_rate", mode="kafka")))
    assert told(full, "kafka_server_produce_byte_rate_limit") == {"payments": 100.0, "payments/checkout": 100.0}
    assert told(full, "kafka_server_produce_quota_utilization") == {"payments": 150.0}
    assert told(full, "kafka_server_connection_creation_rate") == {"payments": 150.0}


def test_the_log_can_be_json() -> None:
    stream = io.StringIO()
    log = Log(stream, VirtualClock(1_700_000_000_123), log_format=LogFormat.JSON)
    for _ in range(LINES_PER_SECOND + 1):
        log.notify(LogEvent(event="e", level=LogLevel.ERROR, fields={"odd": 'x="1"\n', "n": 3}))
    lines = stream.getvalue().splitlines()
    assert len(lines) == LINES_PER_SECOND
    expected = {"time": "2023-11-14T22:13:20.123Z", "severity": "error", "event": "e", "odd": 'x="1"\n', "n": 3}
    assert json.loads(lines[0]) == expected


def readiness(current: DaemonStatus, *, up: set[Address], times: int = 1) -> tuple[Readiness, list[Address]]:
    """The answer, and which brokers were tried for it."""
    tried: list[Address] = []

    async def probe(address: Address) -> bool:
        tried.append(address)
        return address in up

    async def ask() -> Readiness:
        health = UpstreamHealth(probe=probe)
        for _ in range(times):
            answer = await readiness_of([FIRST, SECOND], health, current.store, draining=current.draining)
        return answer

    return asyncio.run(ask()), tried


def test_a_daemon_is_ready_while_it_takes_connections_and_any_broker_does() -> None:
    told, tried = readiness(status(), up={FIRST, SECOND}, times=5)
    assert told.ready
    assert tried == [FIRST]
    other, tried = readiness(status(), up={SECOND}, times=5)
    assert other.ready
    assert tried == [FIRST, SECOND]
    unreachable, _ = readiness(status(), up=set())
    assert not unreachable.ready
    draining, tried = readiness(replace(status(), draining=True), up={FIRST})
    assert (draining.ready, tried) == (False, [])


def test_a_lost_store_makes_a_daemon_no_less_ready() -> None:
    lost = replace(status(), store=replace(status().store, trouble="gone", age_ms=9000))
    told, _ = readiness(lost, up={FIRST})
    assert (told.ready, told.store_trouble, told.store_age_ms) == (True, "gone", 9000)

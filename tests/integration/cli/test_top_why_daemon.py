"""`top` and `why` while a greedy producer is held back: by a daemon, by its metrics, and by a Prometheus server."""

import http.server
import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota, store_url
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.run.topics import EmbeddedCluster

QUOTA = 400_000.0


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon that throttles the client-id `greedy` now, and the folder of its store."""
    folder = tmp_path_factory.mktemp("busy")
    set_quota(folder, Entity.of(client_id="greedy"), producer_byte_rate=QUOTA)
    options = ["--quota-window-num", "3", "--metrics-port", "127.0.0.1:0"]
    with (
        EmbeddedCluster() as cluster,
        running_daemon(folder, upstream=cluster.bootstrap, options=options) as daemon,
    ):
        load = threading.Thread(
            target=acknowledgements, args=(daemon.bootstrap, "topic", "greedy"), kwargs={"duration_s": 12.0}
        )
        load.start()
        try:
            daemon.wait_until(lambda status: bool(status.throttled))
            yield daemon, folder
        finally:
            load.join()


def answer(command: str, *options: str) -> Any:
    code, out, err = run_cli(command, *options, "--output", "json")
    assert code == 0, err
    return json.loads(out)


def test_top_shows_the_client_with_its_limit_and_level(busy: tuple[DaemonProcess, Path]) -> None:
    daemon, folder = busy
    document = answer("top", "--control", str(daemon.control), "--once")
    assert document["store"] == store_url(folder)
    (row,) = (row for row in document["rows"] if row["client_id"] == "greedy" and row["observed"] > 0)
    assert (row["key"], row["limit"], row["level"]) == ("producer_byte_rate", QUOTA, 7)
    assert 0.5 < row["share"] < 10


def test_why_names_the_quota_and_a_value_that_is_larger(busy: tuple[DaemonProcess, Path]) -> None:
    daemon, _ = busy
    document = answer("why", "--client", "greedy", "--control", str(daemon.control))
    assert document["throttled_by"] == "producer_byte_rate"
    assert document["answers"][0]["ends_at"] > QUOTA
    assert document["verdict"][0].startswith("yes: producer_byte_rate holds ")
    assert "in the last minute" in document["verdict"][0]
    (usage,) = document["answers"][0]["brokers"]
    assert usage["last_minute"]["times"] > 0
    assert 0 < usage["last_minute"]["share"] < 1


def forms(table: str, context: str) -> list[list[str]]:
    """Return the cells of what `context test` shows, without addresses, figures and the lines below headings."""
    singular = table.replace(context, "NAME").replace("entities", "entity").replace("buckets", "bucket")
    rows = [re.split(r"\s{2,}", line.strip()) for line in singular.splitlines()]
    return [[re.sub(r"\d+|\S*/\S*", "#", cell) for cell in row] for row in rows if row != [""] and set(row[0]) != {"-"}]


def test_a_context_names_the_daemon_and_its_metrics(
    busy: tuple[DaemonProcess, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, folder = busy
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    named = ("--store", store_url(folder), "--control", str(daemon.control), "--prometheus", daemon.metrics_url)
    assert run_cli("context", "set", "here", *named, "--use")[0] == 0
    parts = answer("context", "test")["addresses"]
    assert [(each["part"], each["reached"]) for each in parts] == [
        ("store", True),
        ("control", True),
        ("prometheus", True),
    ]
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "contexts.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ kafka-quotas context test prod\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert forms(run_cli("context", "test", "here")[1], "here") == forms(shown, "prod")
    assert answer("why", "--client", "greedy")["throttled_by"] == "producer_byte_rate"
    assert answer("daemon", "status")["pid"] == answer("daemon", "status", "--context", "here")["pid"]


def test_effective_quotas_with_what_the_daemon_sees(busy: tuple[DaemonProcess, Path]) -> None:
    daemon, folder = busy
    options = ("--effective", "--client", "greedy", "--with-usage", "--control", str(daemon.control))
    document = answer("describe", "--store", store_url(folder), *options)
    (usage,) = document["clients"][0]["quotas"][0]["usage"]
    assert usage["observed"] > 0


@pytest.mark.parametrize(
    "command",
    [
        ("why", "--client", "greedy"),
        ("top", "--once"),
        ("describe", "--effective", "--client", "greedy", "--with-usage"),
    ],
)
def test_limits_of_another_store_than_the_daemons_are_refused(
    busy: tuple[DaemonProcess, Path], tmp_path: Path, command: tuple[str, ...]
) -> None:
    daemon, folder = busy
    set_quota(tmp_path, Entity.of(client_id="greedy"), consumer_byte_rate=5e6)
    err = refused(*command, "--control", str(daemon.control), "--store", store_url(tmp_path))
    assert err.splitlines()[0] == (
        f"error: the daemon takes its limits from {store_url(folder)}, not from {store_url(tmp_path)}"
    )
    (tmp_path / "link").symlink_to(folder)
    same = store_url(folder).replace(str(folder), f"{tmp_path}/link")
    assert run_cli(*command, "--control", str(daemon.control), "--store", same)[0] == 0


def test_the_page_for_browsers_refuses_them_too(busy: tuple[DaemonProcess, Path], tmp_path: Path) -> None:
    daemon, folder = busy
    set_quota(tmp_path, Entity.of(client_id="greedy"), consumer_byte_rate=5e6)
    named = ("--control", str(daemon.control), "--store", store_url(tmp_path))
    command = [sys.executable, "-m", "kafka_quotas", "ui", "--listen", "0", *named]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as page:
        try:
            assert page.stderr is not None
            match = re.search(r"http://127\.0\.0\.1:\d+/", page.stderr.readline())
            assert match is not None
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{match[0]}api/overview", timeout=60)
            with refused.value as answer:
                told = json.load(answer)["error"]
        finally:
            page.kill()
    assert told == f"the daemon takes its limits from {store_url(folder)}, not from {store_url(tmp_path)}"


def test_describe_with_usage_reads_the_daemons_store_where_none_is_named(busy: tuple[DaemonProcess, Path]) -> None:
    daemon, _ = busy
    document = answer("describe", "--effective", "--client", "greedy", "--with-usage", "--control", str(daemon.control))
    assert document["clients"][0]["quotas"][0]["limit"] == QUOTA


def test_the_daemons_own_metrics_are_read_like_those_of_brokers(busy: tuple[DaemonProcess, Path]) -> None:
    daemon, folder = busy
    document = answer("top", "--prometheus", daemon.metrics_url, "--store", store_url(folder))
    rows = [row for row in document["rows"] if row["client_id"] == "greedy"]
    assert {(row["key"], row["limit"], row["level"]) for row in rows} == {("producer_byte_rate", QUOTA, 7)}


class _Prometheus(http.server.BaseHTTPRequestHandler):
    """Answers one query, as a Prometheus server does."""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)["query"][0]
        assert asked.path == "/api/v1/query"
        assert query.startswith('{__name__=~"(?i)(kafka_server_quota_')
        labels = {"__name__": "kafka_server_quota_byte_rate", "resource": "Fetch", "user": "al%20ice", "instance": "k1"}
        result = [{"metric": labels, "value": [1700000000, "2500000.5"]}]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


class _Html(_Prometheus):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html></html>")


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_prometheus_server_is_queried(tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(user="al ice"), consumer_byte_rate=5e6)
    with serving(_Prometheus) as url:
        document = answer("why", "--user", "al ice", "--prometheus", url, "--store", store_url(tmp_path))
    (row,) = document["answers"][1]["brokers"]
    assert row == {"broker": "k1", "observed": 2500000.5, "share": 0.5000001, "throttle_ms": None, "last_minute": None}
    assert document["throttled_by"] is None


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_an_address_where_nothing_answers(tmp_path: Path, path: str) -> None:
    with serving(_Html) as url:
        pass
    set_quota(tmp_path, Entity.of(user="alice"), consumer_byte_rate=5e6)
    err = refused("top", "--prometheus", url + path, "--store", store_url(tmp_path), code=1)
    assert err.startswith("error: no metrics from 127.0.0.1:")


def test_what_is_no_prometheus_server_is_told_so(tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(user="alice"), consumer_byte_rate=5e6)
    with serving(_Html) as url:
        code, _, err = run_cli("top", "--prometheus", url, "--store", store_url(tmp_path))
    assert code == 1
    assert "is no Prometheus server" in err


def test_without_a_daemon_there_is_one_clear_line(tmp_path: Path) -> None:
    err = refused("why", "--user", "alice", "--control", str(tmp_path / "none.sock"), code=1)
    assert err.startswith("error: no daemon answers on ")

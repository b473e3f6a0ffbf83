"""The HTTP server of metrics and pages, by the bytes of requests and answers."""

import asyncio
import json

import pytest

from kafka_quotas.core.errors import StoreError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import TEXT, HttpReply, HttpServer, Query

defects: list[Exception] = []


async def page(query: Query) -> HttpReply:
    match query.get("fail"):
        case "store":
            raise StoreError("the store is gone", hint="put it back")
        case "defect":
            raise LookupError("no such thing")
    return HttpReply(body=query.get("text", "").encode(), content_type=TEXT)


def answer(target: str, *headers: str, method: str = "GET", listen: str = "127.0.0.1") -> tuple[str, str, str]:
    """The first line, the head and the body of an answer."""
    server = HttpServer(
        Address(host=listen, port=0), routes={"/metrics": page}, pages={"/": page}, on_defect=defects.append
    )
    head = "\r\n".join((f"{method} {target} HTTP/1.1", *headers, "", ""))
    top, _, body = asyncio.run(server._answer(head.encode("latin-1"))).decode().partition("\r\n\r\n")
    return top.split("\r\n")[0], top, body


OURS = "127.0.0.1 127.0.0.1:9480 [::1]:9480 [::1] localhost:1 LOCALHOST app.localhost 192.0.2.7:80 quotas.example:80"


@pytest.mark.parametrize("host", OURS.split())
def test_a_page_answers_to_addresses_to_this_machine_and_to_the_name_that_it_listens_on(host: str) -> None:
    assert answer("/?text=hello", f"Host: {host}", listen="quotas.example")[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: evil.example",),
        ("Host: evil.example:9480",),
        ("host: 127.0.0.1.evil.example",),
        ("Host: localhost.evil.example",),
        ("Host: 127.0.0.1", "Host: evil.example"),
        ("Host: 127.0.0.1@evil.example",),
        ("Host:",),
        (),
    ],
)
def test_a_name_that_a_stranger_made_lead_here_gets_no_page(headers: tuple[str, ...]) -> None:
    status, _, body = answer("/?text=secret", *headers)
    assert status == "HTTP/1.1 421 Misdirected Request"
    assert "secret" not in body


def test_metrics_answer_to_any_name() -> None:
    assert answer("/metrics?text=1", "Host: daemon.svc.cluster.local")[2] == "1"
    assert answer("/metrics?text=1")[2] == "1"


def test_every_answer_forbids_scripts_and_frames_of_others() -> None:
    for target in ("/", "/metrics", "/nothing"):
        head = answer(target, "Host: localhost")[1]
        assert "default-src 'none'; script-src 'self'" in head
        assert "frame-ancestors 'none'" in head
        assert "X-Content-Type-Options: nosniff" in head


def test_only_reading_is_possible() -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert answer("/", "Host: localhost", method=method)[0] == "HTTP/1.1 405 Method Not Allowed"
    assert answer("/?text=hello", "Host: localhost", method="HEAD")[2] == ""


def test_an_unknown_path_names_those_there_are() -> None:
    assert answer("/nothing", "Host: localhost")[2] == "/\n/metrics\n"


def test_an_error_is_a_message_with_its_hint() -> None:
    status, _, body = answer("/?fail=store", "Host: localhost")
    assert status == "HTTP/1.1 503 Service Unavailable"
    assert json.loads(body) == {"error": "the store is gone", "hint": "put it back"}


def test_a_defect_is_reported_and_ends_no_other_request() -> None:
    defects.clear()
    status, _, body = answer("/?fail=defect", "Host: localhost")
    assert status == "HTTP/1.1 500 Internal Server Error"
    assert "LookupError: no such thing" in json.loads(body)["error"]
    assert [type(each) for each in defects] == [LookupError]


@pytest.mark.parametrize("target", ["//[", "/?" + "a=1&" * 20, "*", "/\x00", "/%ff?text=%ff"])
def test_odd_targets_are_answered(target: str) -> None:
    assert answer(target, "Host: localhost")[0].split(" ")[1] in ("200", "400", "404")

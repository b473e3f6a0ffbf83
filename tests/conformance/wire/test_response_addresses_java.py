"""No address that leads past a daemon, in any response of the released classes, whatever its version."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.brokers.java_process import java, java_command
from tests.support.brokers.maven import KAFKA_3, KAFKA_4, Release, jars
from tests.support.frames.enforcement import Pair, framed, produce, request, response

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey

TIMEOUT_S = 120
HOST = re.compile(rb"(?:/[a-z_]+)*/[a-z_]*(?:host|address|_endpoints?/|ur[li])(?![a-z_])")
"""The paths of texts that say where something is; every text of these responses is its own path."""
OF_CLIENTS = frozenset(
    {
        b"/groups/members/client_host",
        b"/groups/members/user_endpoint/host",
        b"/partitions_by_user_endpoint/user_endpoint/host",
        b"/resources/acls/host",
        b"/filter_results/matching_acls/host",
    }
)
"""Where clients are, by what they or an ACL say: the daemon leaves that to them."""
EMPTIED, REFUSED = {(55, 2)}, {52, 53, 54, 59, 82}


class Released(NamedTuple):
    """A response of the released classes."""

    api_key: int
    version: int
    frame: bytes

    @property
    def hosts(self) -> set[bytes]:
        """The paths of the hosts that are not clients'."""
        return set(HOST.findall(self.frame)) - OF_CLIENTS


@cache
def released(release: Release) -> tuple[Released, ...]:
    """A response of every version of every API."""
    if java() is None:
        pytest.skip("needs Java")
    source = str(Path(__file__).parents[2] / "support" / "java" / "ResponsesWithText.java")
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = java_command(jars(release), source, [], options=options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        assert "jdk.compiler" in done.stderr, done.stderr
        pytest.skip("needs a JDK: this Java can't run a source file")
    found = []
    for line in done.stdout.splitlines():
        key, version, header, *body = line.split()
        tags = b"\0" * int(header)
        found.append(Released(int(key), int(version), response(1, tags + bytes.fromhex("".join(body)))))
    return tuple(found)


def passed(answer: Released) -> tuple[bytes, Pair]:
    """What a client gets of a response to the request that it belongs to, with the session that it passed."""
    pair = Pair()
    key, version = answer.api_key, answer.version
    pair.send(produce(1, version=version) if key == ApiKey.PRODUCE else request(key, version, 1, bytes(64)))
    return pair.answer(answer.frame), pair


@pytest.mark.parametrize("release", [KAFKA_4, KAFKA_3], ids=["4.3", "3.9"])
def test_no_host_of_any_response_gets_past_the_daemon(release: Release) -> None:
    with_hosts = [each for each in released(release) if each.hosts]
    refused, emptied, rewritten = set[int](), set[tuple[int, int]](), set[int]()
    for answer in with_hosts:
        api = (answer.api_key, answer.version)
        try:
            got, pair = passed(answer)
        except ProtocolError:
            refused.add(answer.api_key)
            continue
        assert not answer.hosts & set(HOST.findall(got)), f"{api} hands out {answer.hosts}"
        if pair.brokers_named:
            rewritten.add(answer.api_key)
            assert b"127.0.0.1" in got, api
        else:
            emptied.add(api)
    assert rewritten == {0, 1, 3, 10, 60, *({78, 79} if release is KAFKA_4 else ())}
    assert emptied == EMPTIED
    assert refused == REFUSED | (set() if release is KAFKA_4 else {78, 79}), "version 0 of share groups was a preview"


def test_what_is_emptied_keeps_all_else() -> None:
    (answer,) = (each for each in released(KAFKA_4) if each[:2] == (55, 2))
    got, _ = passed(answer)
    node_and_no_listeners = (1).to_bytes(4, "big") + b"\x01\x00" + b"\x00"
    assert got.endswith(node_and_no_listeners)
    kept = len(got) - len(node_and_no_listeners)
    assert got[4:kept] == answer.frame[4:kept]
    assert got == framed(got[4:])


def test_versions_that_nobody_announced_are_refused_whatever_they_may_hold() -> None:
    for answer in released(KAFKA_4):
        if answer.api_key not in {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}:
            with pytest.raises(ProtocolError, match=r"announced|beyond"):
                passed(answer._replace(version=120))

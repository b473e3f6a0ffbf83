"""The table of what each API is charged with, against the bytecode of the brokers' classes."""

import subprocess
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.support.brokers.java_process import java, java_command
from tests.support.brokers.maven import KAFKA_3, KAFKA_4, Release, jars

from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, ApiCharges, Mutation, RequestTime
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.proxying.topics import DETAIL_START, MAY_NOT_CREATE

TIMEOUT_S = 120
COORDINATOR = "org/apache/kafka/coordinator/group"
OLDER_RELEASE_ONLY = {4, 5, 6, 7, 56, 67}
"""APIs between brokers that those of Kafka 4.3.1 no longer serve."""
BYTES = {QuotaType.PRODUCE: {"produce"}, QuotaType.FETCH: {"fetch"}, None: set[str]()}
TIMES = {
    RequestTime.CHARGED: {"listener", "request"},
    RequestTime.UNLESS_UNANSWERED: {"listener", "request", "exempt"},
    RequestTime.UNLESS_REPLICA: {"listener", "request", "exempt"},
    RequestTime.UNLESS_BROKER: {"listener", "exempt"},
    RequestTime.NOT_SERVED: set[str](),
}


@cache
def read_from_bytecode(release: Release, listener: str) -> dict[int, set[str]]:
    """By API key, the words of `QuotaCharges.java` for the classes of one release."""
    if java() is None:
        pytest.skip("needs Java")
    source = str(Path(__file__).parents[2] / "support" / "java" / "QuotaCharges.java")
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = java_command(jars(release), source, [listener], options=options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        assert "jdk.compiler" in done.stderr, done.stderr
        pytest.skip("needs a JDK: this Java can't run a source file")
    lines = [line.split() for line in done.stdout.splitlines()]
    return {int(key): set(charges) for key, *charges in lines}


def expected(row: ApiCharges) -> set[str]:
    """The words of a row."""
    words = BYTES[row.byte_rate] | TIMES[row.request_time]
    if row.mutation is Mutation.REQUESTED:
        words = words | {f"mutation={row.strict_since}"}
    return words | {"creates"} if row.mutation is Mutation.CREATED else words


def test_every_api_is_charged_with_what_the_released_classes_charge_it_with() -> None:
    found = read_from_bytecode(KAFKA_4, "BROKER")
    assert not OLDER_RELEASE_ONLY & {key for key, words in found.items() if "listener" in words}
    found = found | {key: read_from_bytecode(KAFKA_3, "ZK_BROKER")[key] for key in OLDER_RELEASE_ONLY}
    assert {key: words - {"cluster-action"} for key, words in found.items()} == {
        key: expected(row) for key, row in QUOTA_CHARGES.items()
    }


def test_what_is_exempt_where_a_broker_asks_is_what_only_brokers_may_send() -> None:
    found = read_from_bytecode(KAFKA_4, "BROKER")
    exempt = {key for key, row in QUOTA_CHARGES.items() if row.request_time is RequestTime.UNLESS_BROKER}
    assert exempt == {key for key, words in found.items() if "cluster-action" in words} & exempt


def test_the_table_has_every_api_that_the_wire_knows() -> None:
    assert set(QUOTA_CHARGES) == set(API_TABLE)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        (78, ApiCharges()),
        (79, ApiCharges(byte_rate=QuotaType.FETCH)),
        (27, ApiCharges()),
        (10, ApiCharges(mutation=Mutation.CREATED)),
        (88, ApiCharges()),
        (37, ApiCharges(mutation=Mutation.REQUESTED, strict_since=4)),
        (52, ApiCharges()),
        (57, ApiCharges(request_time=RequestTime.NOT_SERVED)),
    ],
)
def test_a_wrong_row_is_noticed(key: int, wrong: ApiCharges) -> None:
    assert expected(wrong) != read_from_bytecode(KAFKA_4, "BROKER")[key] - {"cluster-action"}


@pytest.mark.parametrize(
    ("jar", "name", "text"),
    [
        ("kafka-group-coordinator-4.3.1.jar", f"{COORDINATOR}/streams/topics/InternalTopicManager", DETAIL_START),
        ("kafka_2.13-4.3.1.jar", "kafka/server/KafkaApis", f"; {MAY_NOT_CREATE}"),
    ],
)
def test_internal_topics_are_named_in_the_words_of_the_released_classes(jar: str, name: str, text: str) -> None:
    if java() is None:
        pytest.skip("needs Java, without which Kafka's classes are not fetched")
    with ZipFile(jars(KAFKA_4) / jar) as classes:
        assert text.encode() + b"\x01" in classes.read(f"{name}.class"), "the text, then what is put into it"

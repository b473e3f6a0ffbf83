"""kafka-configs' command lines beyond what the conformance lines pin.

The original was asked for every expectation.
"""

import pytest

from kafka_quotas.commands.kafka_configs.command import (
    Action,
    KafkaConfigsCommand,
    checked_options,
    command_of,
    describe_lines,
)
from kafka_quotas.commands.kafka_configs.options import OPTIONS, KafkaConfigsError, usage_text
from kafka_quotas.core.model.entity import Entity

BROKER = ["--bootstrap-server", "localhost:9092"]


def understood(*words: str, file: dict[str, str] | None = None) -> KafkaConfigsCommand:
    return command_of(checked_options(words, resolves=lambda _: False), load_properties=lambda _: file or {})


def refused(*words: str) -> KafkaConfigsError:
    with pytest.raises(KafkaConfigsError) as raised:
        understood(*words)
    return raised.value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-x --alter", "x is not a recognized option"),
        ("-use=5", "u is not a recognized option"),
        ("--=x", " is not a recognized option"),
        ("---user a", "-user is not a recognized option"),
        ("--use a", "use is not a recognized option"),
        ("BROKER --describe --user", "Option user requires an argument"),
        (
            "BROKER --describe --user a --user b",
            "Found multiple arguments for option user, but you asked for only one",
        ),
        (
            "BROKER BROKER --describe --user a",
            "Found multiple arguments for option bootstrap-server, but you asked for only one",
        ),
        (
            "BROKER --describe --broker one",
            "The entity name for brokers must be a valid integer broker id, but it is: one",
        ),
        (
            "BROKER --describe --entity-default --entity-type topics",
            "--entity-default must not be specified with --describe of topics",
        ),
        (
            "BROKER --alter --topic= --add-config a=1",
            "An entity name must be specified with --alter of topics",
        ),
        (
            "BROKER --alter --user u --add-config SCRAM-SHA-256=x",
            "Invalid credential property SCRAM_SHA_256=x",
        ),
        (
            "BROKER --alter --user u --add-config SCRAM-SHA-256=[iterations=1,password=x]",
            "Iterations 1 is less than the minimum 4096 required for SCRAM-SHA-256",
        ),
        (
            "BROKER --alter --user u --add-config SCRAM-SHA-256=[iterations=,password=x]",
            'For input string: ""',
        ),
        (
            "BROKER --alter --user u --client c --add-config ,",
            "Altering user SCRAM credentials should never occur for more zero or multiple users: List(c, u)",
        ),
        (
            "--zookeeper z:1 --all --describe --user u",
            "--bootstrap-server must be specified for --all",
        ),
        (
            "BROKER --zk-tls-config-file f --describe --user u",
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
    ],
)
def test_refusals(words: str, message: str) -> None:
    error = refused(*words.replace("BROKER", "--bootstrap-server localhost:9092").split(" "))
    assert error.message == message
    assert error.exit_code == 1


def test_what_is_no_quota_is_left_to_the_original() -> None:
    for words in (
        ["--describe", "--topic", "t"],
        ["--alter", "--user", "u", "--add-config", "SCRAM-SHA-512=[password=x]"],
        ["--alter", "--user", "u", "--delete-config", "SCRAM-SHA-256"],
    ):
        error = refused(*BROKER, *words)
        assert error.error_class == "not supported"
        assert error.hint is not None


def test_words_that_are_no_options_are_ignored() -> None:
    command = understood(*BROKER, "stray", "--describe=yes", "-", "-user", "u", "--", "--alter")
    assert command.action is Action.DESCRIBE
    assert command.entity == Entity.of(user="u")


def test_an_option_takes_the_next_word_whatever_it_is() -> None:
    assert understood(*BROKER, "--describe", "--user", "--alter").names == ("--alter",)
    assert understood(*BROKER, "--describe", "--user=").entity == Entity.of(user=None)


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("producer_byte_rate=1,", {"producer_byte_rate": "1"}),
        ("producer_byte_rate\t=\n5", {"producer_byte_rate": "5"}),
        ("producer_byte_rate=[1],request_percentage=[2]", {"producer_byte_rate": "1", "request_percentage": "2"}),
        ("producer_byte_rate=[1],request_percentage=2]", {"producer_byte_rate": "1,request_percentage=2"}),
        ("request_percentage=1,request_percentage=2", {"request_percentage": "2"}),
        (",", {}),
    ],
)
def test_pairs(text: str, added: dict[str, str]) -> None:
    assert understood(*BROKER, "--alter", "--client", "c", "--add-config", text).added == added


def test_a_comma_in_brackets_parts_nothing() -> None:
    error = refused(*BROKER, "--alter", "--client", "c", "--add-config", "k=[a,b],request_percentage=1")
    assert error.message.endswith("Unexpected config names: Set(k)")


def test_a_file_keeps_its_brackets() -> None:
    words = [*BROKER, "--alter", "--client", "c", "--add-config-file", "f"]
    command = understood(*words, file={"producer_byte_rate": "[5]"})
    with pytest.raises(KafkaConfigsError, match="Cannot parse quota configuration value for producer_byte_rate"):
        command.changes({})
    assert understood(*words, file={"producer_byte_rate": "5"}).changes({}) == (("producer_byte_rate", 5.0),)


def test_keys_to_remove_are_checked_before_values_are_read() -> None:
    command = understood(
        *BROKER,
        "--alter",
        "--user",
        "u",
        "--add-config",
        "producer_byte_rate=x",
        "--delete-config",
        "request_percentage",
    )
    with pytest.raises(KafkaConfigsError, match=r"Invalid config\(s\): request_percentage"):
        command.changes({"producer_byte_rate": 1.0})


def test_a_lone_name_goes_to_the_client_in_the_filter() -> None:
    words = ["--describe", "--entity-type", "clients", "--entity-type", "users", "--entity-name", "A"]
    command = understood(*BROKER, *words)
    components = [(part.entity_type, part.name) for part in command.quota_filter.components]
    assert components == [("client-id", "A"), ("user", None)]


def test_credentials_are_described_for_users_alone() -> None:
    assert understood(*BROKER, "--describe", "--user", "u").describes_scram
    assert not understood(*BROKER, "--describe", "--user-defaults").describes_scram
    assert not understood(*BROKER, "--describe", "--user", "u", "--client", "c").describes_scram


def test_the_line_of_an_alteration_through_zookeeper() -> None:
    words = ["--zookeeper", "z:1", "--alter", "--add-config", ","]
    start = "Completed updating config for entity: "
    assert understood(*words, "--user", "u").completed_line == f"{start}user-principal 'u'."
    assert understood(*words, "--user-defaults").completed_line == f"{start}default user-principal."


def test_version_and_help() -> None:
    assert understood("--version").action is Action.VERSION
    assert refused("--version", "--help").error_class == "usage"
    assert all(f"--{name}" in usage_text() for name in OPTIONS)


def test_described_values_are_java_doubles() -> None:
    entries = [(Entity.of(user="a", client_id=None), {"producer_byte_rate": 10485760.0})]
    assert describe_lines(entries) == [
        "Quota configs for user-principal 'a', the default client-id are producer_byte_rate=1.048576E7"
    ]

"""kafka-configs beyond its conformance data: warnings, ZooKeeper, errors of stores, files, links, raw arguments."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.cli import kafka_configs
from kafka_quotas.cli.main import main
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.model.entity import Entity, QuotaFilter
from kafka_quotas.stores.files.journal import Journal
from kafka_quotas.stores.kafka.broker_client import LostAnswerError
from kafka_quotas.stores.store import BrokerAnswerError, QuotaEntry

AT = ("--bootstrap-server", "localhost:9092")
RATE = "producer_byte_rate"
ERRORS = "org.apache.kafka.common.errors."


class Brokers:
    """Stands for brokers that hold nothing and answer every alteration in one way."""

    url = "kafka://localhost:9092"

    def __init__(self, answer: KafkaQuotasError | None = None) -> None:
        self.answer = answer
        self.altered: list[tuple[Entity, list[tuple[str, float | None]]]] = []

    def describe(self, _: QuotaFilter) -> list[QuotaEntry]:
        """Store nothing."""
        return []

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        """Return the answer, if there is one."""
        if self.answer is not None:
            raise self.answer
        self.altered.append((entity, list(changes)))

    def close(self) -> None:
        """Do nothing."""


class Users:
    """Stands for ZooKeeper: the texts stored for users."""

    def __init__(self, stored: Mapping[str | None, Mapping[str, str]]) -> None:
        self._stored = stored

    def of_user(self, name: str | None) -> Mapping[str, str]:
        """What is stored for a user."""
        return self._stored.get(name, {})

    def of_all_users(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """Every user."""
        return list(self._stored.items())

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    double = Brokers()
    monkeypatch.setattr(kafka_configs, "open_brokers", lambda _: double)
    return double


def alter(*arguments: str) -> tuple[int, str, list[str]]:
    code, out, err = run_cli("kafka-configs", *AT, "--alter", *arguments)
    return code, out, err.splitlines()


class TestWarnings:
    @pytest.mark.parametrize(
        ("arguments", "warned"),
        [
            (("--user", "", "--add-config", f"{RATE}=1"), ["--user is empty"]),
            (("--entity-type", "clients", "--entity-name", "", "--add-config", f"{RATE}=1"), ["-name is empty, so it"]),
            (("--user", "--client", "c", "--add-config", f"{RATE}=1"), ["takes --client as the", "passed over: c"]),
            (("--client", "c", "--add-config", f"{RATE}=NaN"), [f"{RATE}=NaN is taken by KRaft brokers"]),
            (("--client", "c", "--add-config", f"{RATE}=1,", "b=2", "--", "--force"), ["passed over: b=2 --force"]),
            (("--user-defaults", "--add-config", f"{RATE}=1"), []),
        ],
    )  # fmt: skip
    def test_what_is_dangerous_is_told_and_done(
        self, brokers: Brokers, arguments: tuple[str, ...], warned: list[str]
    ) -> None:
        code, out, err = alter(*arguments)
        assert (code, out[:9], len(brokers.altered)) == (0, "Completed", 1)
        assert len(err) == len(warned)
        for line, piece in zip(err, warned, strict=True):
            assert line.startswith("warning: ")
            assert piece in line

    @pytest.mark.usefixtures("brokers")
    def test_describing_is_harmless(self) -> None:
        assert run_cli("kafka-configs", *AT, "--describe", "--user", "", "x") == (0, "", "")


class TestBrokers:
    def test_an_answer_is_told_by_the_name_of_its_exception(self, brokers: Brokers) -> None:
        brokers.answer = BrokerAnswerError("no and\nno", code="INVALID_REQUEST", hint="think again")
        arguments = ("--client", "c", "--add-config", f"{RATE}=0")
        told = " ".join((*AT, "--alter", *arguments))
        assert alter(*arguments) == (
            1,
            "",
            [
                f"Error while executing config command with args '{told}'",
                f"java.util.concurrent.ExecutionException: {ERRORS}InvalidRequestException: no and\\nno",
                "hint: think again",
            ],
        )

    @pytest.mark.parametrize(
        ("answer", "exception"),
        [
            (BrokerAnswerError("x", code="CLUSTER_AUTHORIZATION_FAILED"), "errors.ClusterAuthorizationException: x"),
            (BrokerAnswerError("x", code="POLICY_VIOLATION"), "errors.PolicyViolationException: x"),
            (StoreUnreachableError("x"), "errors.TimeoutException: x"),
            (UsageError("x"), "x"),
        ],
    )
    def test_exceptions_have_their_names_in_kafka(
        self, brokers: Brokers, answer: KafkaQuotasError, exception: str
    ) -> None:
        brokers.answer = answer
        code, out, err = alter("--client", "c", "--add-config", f"{RATE}=1")
        assert (code, out, err[1].rpartition("org.apache.kafka.common.")[2]) == (1, "", exception)

    def test_changes_go_out_as_given(self, brokers: Brokers) -> None:
        assert alter("--client", "c", "--add-config", f"{RATE}=-1.5")[0] == 0
        assert brokers.altered == [(Entity.of(client_id="c"), [(RATE, -1.5)])]

    def test_nothing_to_change_asks_nobody(self, brokers: Brokers) -> None:
        brokers.answer = StoreUnreachableError("nothing was to be asked")
        assert alter("--client", "c", "--add-config", ",") == (0, "Completed updating config for client c.\n", [])

    def test_credentials_are_refused_and_left_alone(self, brokers: Brokers) -> None:
        code, out, err = alter("--user", "u", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=s3cret]")
        assert (code, out, brokers.altered) == (1, "", [])
        assert err == [
            "SCRAM credentials are not quotas; nothing was changed",
            "hint: use Kafka's own kafka-configs for them",
        ]

    def test_a_file_of_quotas(self, brokers: Brokers, tmp_path: Path) -> None:
        file = tmp_path / "quotas.properties"
        file.write_text(f"# limits\n{RATE} = 1024\nrequest_percentage:\\\n  50\n")
        assert alter("--client", "c", "--add-config-file", str(file))[0] == 0
        assert sorted(brokers.altered[0][1], key=str) == [(RATE, 1024.0), ("request_percentage", 50.0)]
        code, _, err = alter("--client", "c", "--add-config-file", f"{file}.none")
        assert (code, err[1]) == (1, f"java.nio.file.NoSuchFileException: {file}.none")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("--bootstrap-controller", "localhost:9093"), "UnsupportedEndpointTypeException: This Admin API"),
            (("--bootstrap-server", "localhost"), "KafkaException: Failed to create new KafkaAdminClient"),
            (("--bootstrap-server", ","), "--bootstrap-server is empty"),
            (
                ("--bootstrap-server", "h:1", "--command-config", "/no/such"),
                "java.nio.file.NoSuchFileException: /no/such",
            ),
        ],
    )
    def test_addresses_that_cannot_be_asked(self, arguments: tuple[str, ...], told: str) -> None:
        err = refused("kafka-configs", *arguments, "--describe", "--client", "c", code=1)
        assert told in err.splitlines()[1]


class TestZooKeeper:
    STORED: Mapping[str | None, Mapping[str, str]] = {
        "alice": {RATE: "1024", "request_percentage": "100.0", "SCRAM-SHA-256": "salt=s,iterations=4096"},
        "bob": {"SCRAM-SHA-512": "salt=s,iterations=4096"},
        "carol": {},
        None: {RATE: "77"},
    }
    DEPRECATION = "".join(f"{line}\n" for line in kafka_configs.DEPRECATION_LINES)

    @pytest.mark.parametrize(
        ("arguments", "lines"),
        [
            (
                ("--entity-type", "users"),
                [
                    "Configs for user-principal 'alice' are request_percentage=100.0,producer_byte_rate=1024",
                    "Configs for default user-principal are producer_byte_rate=77",
                ],
            ),
            (("--user", "bob"), ["Configs for user-principal 'bob' are "]),
            (("--user", "nobody"), ["Configs for user-principal 'nobody' are "]),
            (("--user-defaults",), ["Configs for default user-principal are producer_byte_rate=77"]),
        ],
    )
    def test_describes_the_texts_without_credentials(
        self, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], lines: list[str]
    ) -> None:
        monkeypatch.setattr(kafka_configs, "open_zookeeper", lambda _: Users(self.STORED))
        code, out, err = run_cli("kafka-configs", "--zookeeper", "localhost:2181", "--describe", *arguments)
        assert (code, out) == (0, self.DEPRECATION + "".join(f"{line}\n" for line in lines))
        assert err.startswith("note: SCRAM credentials are no quotas")

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (StoreUnreachableError("x"), "kafka.zookeeper.ZooKeeperClientTimeoutException: x"),
            (KafkaQuotasError("x"), "x"),
        ],
    )
    def test_its_errors(self, monkeypatch: pytest.MonkeyPatch, error: KafkaQuotasError, told: str) -> None:
        def open_zookeeper(_: object) -> Users:
            raise error

        monkeypatch.setattr(kafka_configs, "open_zookeeper", open_zookeeper)
        code, out, err = run_cli("kafka-configs", "--zookeeper", "localhost:2181", "--describe", "--user", "u")
        assert (code, out, err.splitlines()[1:]) == (1, self.DEPRECATION, [told])


class TestArguments:
    def test_options_of_ours_are_none_of_the_originals(self) -> None:
        assert run_cli("kafka-configs", "--verbose") == (1, "", "verbose is not a recognized option\n")
        assert run_cli("kafka-configs", "-h")[2] == "h is not a recognized option\n"
        assert run_cli("kafka-configs", "--describe", "--help")[2].startswith("This tool helps to manipulate")

    def test_text_that_is_none_is_told(self) -> None:
        code, out, err = run_cli("kafka-configs", *AT, "--describe", "--user", "caf\udce9")
        assert (code, out, err.splitlines()[1]) == (1, "", "not valid UTF-8: 'caf\\udce9'")

    @pytest.mark.parametrize("name", ["kafka-configs", "kafka-configs.sh"])
    def test_a_link_of_that_name_is_the_command(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        monkeypatch.setattr(sys, "argv", [f"/usr/local/bin/{name}", "--blah"])
        assert main() == 1
        assert capsys.readouterr().err == "blah is not a recognized option\n"


def test_a_change_whose_answer_was_lost_is_in_the_journal_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losing:
        url = "kafka://h:1"

        def describe(self, _: object) -> list[QuotaEntry]:
            return []

        def alter(self, entity: Entity, changes: object) -> None:
            raise LostAnswerError("h:1 gave no answer")

        def close(self) -> None:
            return None

    monkeypatch.setattr(kafka_configs, "open_brokers", lambda _: Losing())
    chosen = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "j")}
    arguments = ("--bootstrap-server", "h:1", "--alter", "--user", "a", "--add-config", f"{RATE}=5")
    err = refused("kafka-configs", *arguments, environment=chosen, code=1)
    assert "TimeoutException" in err
    (entry,) = Journal(tmp_path / "j").read().entries
    assert (entry.confirmed, [change.new for change in entry.changes]) == (False, [5.0])


def test_zookeeper_without_client_quotas_is_refused_in_kafkas_words_alone() -> None:
    asked = ("--zookeeper", "z:2181", "--alter", "--entity-type", "clients", "--entity-name", "a")
    code, out, err = run_cli("kafka-configs", *asked, "--add-config", "producer_byte_rate=1")
    message = err.splitlines()[-1]
    assert (code, "alter --zookeeper" in out + err) == (1, False)
    assert message.startswith("Invalid entity type clients")

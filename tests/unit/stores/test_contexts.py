"""Files of contexts: what is understood, what is refused by name, and how they are changed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.stores.contexts import (
    Context,
    Contexts,
    Secret,
    SecretPlace,
    is_secret_property,
    parse_contexts,
    read_contexts,
    secret_at,
    with_context,
    with_current,
    write_contexts,
)
from kafka_quotas.stores.security.sasl import parse_jaas

PATH = Path("/nowhere/contexts.toml")
WHOLE = """\
# our clusters
current = "prod"   # for now

[contexts.prod]  # the big one
store = "kafka://k1:9092,k2:9092"
username = "ops"
password_file = "prod.password"
control = "run/daemon.sock"
prometheus = ["http://p1:9090", "http://p2:9090"]

[contexts.prod.properties]
"sasl.mechanism" = "SCRAM-SHA-512"
"ssl.key.password" = { variable = "KEY_PASSWORD" }

# still there
[contexts.old]
store = "zk://z1:2181/kafka"
"""


def parsed(text: str) -> Contexts:
    return parse_contexts(text, path=PATH)


def test_a_whole_file_is_understood() -> None:
    contexts = parsed(WHOLE)
    assert [context.name for context in contexts.contexts] == ["old", "prod"]
    assert contexts.current == "prod"
    prod = contexts.get("prod")
    assert (prod.store_url, prod.username) == ("kafka://k1:9092,k2:9092", "ops")
    assert prod.password == Secret(place=SecretPlace.FILE, where="prod.password")
    assert prod.control_path == PATH.parent / "run" / "daemon.sock"
    assert prod.prometheus == ("http://p1:9090", "http://p2:9090")
    assert prod.properties["ssl.key.password"] == Secret(place=SecretPlace.VARIABLE, where="KEY_PASSWORD")


def test_the_example_is_understood() -> None:
    example = read_contexts(Path(__file__).parents[3] / "examples" / "contexts.toml")
    assert [context.name for context in example.contexts] == ["desk", "mtls", "old", "prod"]
    assert [context.name for context in example.contexts if context.protected] == ["prod"]
    assert example.get("mtls").properties["ssl.key.password"] == Secret(place=SecretPlace.FILE, where="admin.password")


def test_no_file_means_no_contexts(tmp_path: Path) -> None:
    assert read_contexts(tmp_path / "contexts.toml").contexts == ()


def test_a_folder_that_is_a_file_means_no_contexts() -> None:
    """A configuration folder below /dev/null is a usual way to have none."""
    assert read_contexts(Path("/dev/null/kafka-quotas/contexts.toml")).contexts == ()


def test_a_file_that_cannot_be_looked_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: File name too long"):
        read_contexts(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("current = 'x'", "there is no context 'x'"),
        ("[contexts.a]\n", "1: contexts.a: store is missing"),
        ("[contexts.a]\nstore = 'nothing'", "2: contexts.a.store: not a store"),
        ("[contexts.a]\nstore = 'local:/x'\nstroe = 'y'", "3: contexts.a.stroe: unknown name 'stroe'"),
        (
            "[contexts.a]\nstore = 'local:/x'\npassword = 'y'",
            "3: contexts.a.password: a password must not be written here",
        ),
        ("[contexts.a]\nstore = 'local:/x'\nusername = 'y'", "1: contexts.a: username and password go together"),
        ("[contexts.a]\nstore = 'local:/x'\npassword_file = 'y'", "1: contexts.a: username and password go together"),
        (
            "[contexts.a]\nstore = 'local:/x'\nusername='u'\npassword_file = 'y'\npassword_command = 'z'",
            "contexts.a: password_file and password_command exclude each other",
        ),
        (
            "[contexts.a]\nstore = 'local:/x'\n[contexts.a.properties]\n'ssl.key.password' = 'y'",
            "contexts.a.properties: property ssl.key.password is a secret",
        ),
        (
            "[contexts.a]\nstore = 'local:/x'\n[contexts.a.properties]\n'x' = { file = 'y', variable = 'z' }",
            "contexts.a.properties: property x is not a reference",
        ),
        ("[contexts.a]\nstore = 'local:/x'\n[contexts.a.properties]\n'x' = true", "property x is neither"),
        (
            "[contexts.a]\nstore = 'local:/x'\nprometheus = 'p1:9090'",
            "contexts.a.prometheus: not the URL of metrics: 'p1:9090'",
        ),
        ("[contexts.a]\nstore = 'local:/x'\nprometheus = [1]", "contexts.a.prometheus.1: 1 is not a text"),
        ("[contexts.a]\nstore = 'local:/x'\ncontrol = 1", "contexts.a.control: 1 is not a text"),
        ("[contexts]\na = 1", "contexts.a: 1 is not a mapping"),
        ("contexts = 1", "1: contexts: 1 is not a mapping"),
        ("[contexts.'a b']\nstore = 'local:/x'", "not a name for a context"),
        ("current = ", "not TOML"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(text)
    assert str(PATH) in caught.value.message
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ssl.key.password", True),
        ("ssl.truststore.password", True),
        ("sasl.jaas.config", True),
        ("zookeeper.sasl.jaas.config", True),
        ("zookeeper.auth", True),
        ("ssl.keystore.key", True),
        ("sasl.oauthbearer.client.credentials.client.secret", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("ssl.keystore.location", False),
        ("sasl.mechanism", False),
    ],
)
def test_secret_properties_are_known_by_their_names(name: str, secret: bool) -> None:
    assert is_secret_property(name) is secret


def test_a_misspelt_context_is_answered_with_the_right_one() -> None:
    with pytest.raises(UsageError) as refused:
        parsed(WHOLE).get("prdo")
    assert refused.value.hint == "did you mean prod?"


def test_choosing_a_context_leaves_the_rest_as_it_is() -> None:
    text = with_current(parsed(WHOLE), "old").text
    assert text == 'current = "old"\n' + WHOLE.replace('current = "prod"   # for now\n', "")
    assert with_current(parsed(text), None).current is None
    with pytest.raises(UsageError, match="there is no context 'x'"):
        with_current(parsed(WHOLE), "x")


def test_one_address_of_metrics_may_be_a_text() -> None:
    contexts = parsed("[contexts.a]\nstore = 'local:/x'\nprometheus = 'https://p1/metrics'")
    assert contexts.get("a").prometheus == ("https://p1/metrics",)


def test_changing_a_context_leaves_the_others_as_they_are() -> None:
    before = parsed(WHOLE)
    changed = replace(before.get("prod"), store_url="kafka://k9:9092", properties={"client.id": 'a"b\\c\n'})
    after = with_context(before, changed)
    assert after.get("prod") == changed
    assert after.get("old") == before.get("old")
    assert after.current == "prod"
    assert after.text.startswith("# our clusters\n")
    assert with_context(parsed(after.text), before.get("prod")).contexts == before.contexts


def test_a_context_is_added_at_the_end() -> None:
    new = Context(name="a.b", store_url="local:/x", folder=PATH.parent)
    assert with_context(parsed(WHOLE), new).text == f'{WHOLE}\n[contexts."a.b"]\nstore = "local:/x"\n'


def test_a_layout_that_lines_cannot_change_is_left_to_a_person() -> None:
    inline = parsed("contexts = { prod = { store = 'local:/x' } }\n")
    with pytest.raises(UsageError, match="only a person can change"):
        with_context(inline, replace(inline.get("prod"), store_url="local:/y"))


def test_a_written_file_is_the_users_own(tmp_path: Path) -> None:
    contexts = with_context(
        read_contexts(tmp_path / "new" / "contexts.toml"),
        Context(name="a", store_url="local:/x", folder=tmp_path / "new"),
    )
    write_contexts(contexts)
    assert read_contexts(contexts.path).contexts == contexts.contexts
    assert contexts.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in contexts.path.parent.iterdir()] == ["contexts.toml"]


def test_secrets_come_from_files_variables_and_commands(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from file\n")
    program = "print('from command')"
    for secret, expected in (
        (secret_at(SecretPlace.FILE, "password"), "from file"),
        (secret_at(SecretPlace.VARIABLE, "P"), "from variable"),
        (secret_at(SecretPlace.COMMAND, [sys.executable, "-c", program]), "from command"),
    ):
        assert secret.read(folder=tmp_path, environment={"P": "from variable"}) == expected


@pytest.mark.parametrize(
    ("place", "where", "told"),
    [
        (SecretPlace.FILE, "missing", "cannot read the secret in"),
        (SecretPlace.VARIABLE, "UNSET", "a secret is empty"),
        (SecretPlace.COMMAND, "/missing/program secret", "cannot run the password command /missing/program"),
        (SecretPlace.COMMAND, "false hunter2", "the password command false failed with exit code 1"),
        (SecretPlace.COMMAND, "true hunter2", "a secret is empty"),
    ],
)
def test_a_secret_that_cannot_be_had_is_told_without_telling_it(
    tmp_path: Path, place: SecretPlace, where: str, told: str
) -> None:
    with pytest.raises(KafkaQuotasError) as caught:
        secret_at(place, where).read(folder=tmp_path, environment={})
    assert told in caught.value.message
    assert "hunter2" not in caught.value.message
    assert "hunter2" not in str(secret_at(place, where))


def test_a_login_is_made_for_kafka_by_its_mechanism_and_never_in_the_clear_by_itself(tmp_path: Path) -> None:
    (tmp_path / "p").write_text('se"cr\\et')
    context = Context(
        name="a",
        store_url="kafka://k:9092",
        folder=tmp_path,
        username="ops",
        password_file=Secret(place=SecretPlace.FILE, where="p"),
        properties={"sasl.mechanism": "SCRAM-SHA-256"},
    )
    properties = context.client_properties()
    login = parse_jaas(properties["sasl.jaas.config"], property_name="x")
    assert (login.module.endswith("ScramLoginModule"), login.options["password"]) == (True, 'se"cr\\et')
    assert properties["security.protocol"] == "SASL_SSL"
    at_zookeeper = replace(context, store_url="zk://z:2181").client_properties()
    assert "DigestLoginModule" in at_zookeeper["zookeeper.sasl.jaas.config"]


def test_the_properties_of_a_context_beat_its_file(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("client.id=file\nsecurity.protocol=SSL\n")
    context = Context(
        name="a",
        store_url="kafka://k:9092",
        folder=tmp_path,
        command_config="client.properties",
        properties={"client.id": "context"},
    )
    assert context.client_properties() == {"client.id": "context", "security.protocol": "SSL"}

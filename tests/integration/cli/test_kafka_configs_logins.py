"""Every way in that `--command-config` can describe, at a real broker: passwords, tokens, and TLS with key stores."""

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import StoreRefusedError
from kafka_quotas.stores.security.sasl import parse_jaas, token_source
from kafka_quotas.stores.store import Polling

OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
STORE_PASSWORD, KEY_PASSWORD = "of-the-store", "of-the-key"


@pytest.fixture
def describe(tmp_path: Path) -> "Describe":
    return Describe(tmp_path / "client.properties")


class Describe:
    """Runs `--describe` with client properties."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, address: str, properties: Mapping[str, str]) -> tuple[int, str, str]:
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        arguments = ("--bootstrap-server", address, "--describe", "--user-defaults")
        return run_cli("kafka-configs", *arguments, "--command-config", str(self._file))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(kafka4: Kafka, describe: Describe, mechanism: str, *, tls: bool) -> None:
    address = kafka4.sasl_tls_bootstrap if tls else kafka4.sasl_bootstrap
    properties = kafka4.client_properties("alice", mechanism=mechanism, tls=tls)
    assert describe(address, properties)[0] == 0
    wrong = {name: value.replace("alice-secret", "wrong") for name, value in properties.items()}
    code, _, err = describe(address, wrong)
    assert code == 1
    assert "org.apache.kafka.common.errors.SaslAuthenticationException: " in err.splitlines()[1]


def test_an_unsigned_token(kafka4: Kafka, describe: Describe) -> None:
    login = f'{OAUTH_LOGIN} unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope=",a,b";'
    assert describe(kafka4.sasl_bootstrap, {**OAUTH, "sasl.jaas.config": login}) == (0, "", "")


def test_a_token_from_a_file(kafka4: Kafka, describe: Describe, tmp_path: Path) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(f"{unsigned_token('alice')}\n")
    properties = {**OAUTH, "sasl.jaas.config": f"{OAUTH_LOGIN};", ENDPOINT: token.as_uri()}
    assert describe(kafka4.sasl_bootstrap, properties) == (0, "", "")
    token.unlink()
    code, _, err = describe(kafka4.sasl_bootstrap, properties)
    assert code == 1
    assert f"cannot read a token from {token}" in err


def test_a_redirected_request_for_a_token_takes_the_secret_nowhere_else() -> None:
    login = parse_jaas(f"{OAUTH_LOGIN} clientId=admin clientSecret=s3cret;", property_name="sasl.jaas.config")
    with token_endpoint() as (url, asked):
        with pytest.raises(StoreRefusedError, match="gave no token"):
            token_source({ENDPOINT: f"{url}/moved"}, login)[0]()
        assert len(asked) == 1


def test_a_token_from_an_endpoint(kafka4: Kafka, describe: Describe) -> None:
    login = f'{OAUTH_LOGIN} clientId="quota admin" clientSecret="s3cret" scope="kafka";'
    with token_endpoint() as (url, asked):
        properties = {**OAUTH, "sasl.jaas.config": login, ENDPOINT: url}
        assert describe(kafka4.sasl_bootstrap, properties) == (0, "", "")
        basic = base64.b64encode(b"quota admin:s3cret").decode()
        assert asked[0] == (f"Basic {basic}", {"grant_type": ["client_credentials"], "scope": ["kafka"]})
        code, _, err = describe(kafka4.sasl_bootstrap, {**properties, ENDPOINT: f"{url}/refuses"})
    assert code == 1
    assert "/refuses gave no token (HTTP Error 401" in err
    assert "s3cret" not in err


@pytest.fixture(scope="module")
def key_stores(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the authority and the client's key of the broker's listener in every form of store."""
    if shutil.which("keytool") is None:
        pytest.skip("keytool, which comes with Java, makes the key stores, and is not on the path")
    folder = tmp_path_factory.mktemp("key-stores")
    for name in ("authority.pem", "client.pem"):
        shutil.copy(kafka4.certificates / name, folder / name)
    _run(folder, "openssl", "pkcs12", "-export", "-in", "client.pem", "-name", "carol", "-out", "client.p12",
         "-passout", f"pass:{STORE_PASSWORD}")  # fmt: skip
    for kind, file in (("PKCS12", "trust.p12"), ("JKS", "trust.jks")):
        _run(folder, "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "authority.pem", "-keystore", file,
             "-storetype", kind, "-storepass", STORE_PASSWORD)  # fmt: skip
    _run(folder, "keytool", "-importkeystore", "-srckeystore", "client.p12", "-srcstorepass", STORE_PASSWORD,
         "-destkeystore", "client.jks", "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD,
         "-destkeypass", KEY_PASSWORD, "-srcalias", "carol")  # fmt: skip
    return folder


def test_key_stores_of_every_form_show_who_comes(kafka4: Kafka, key_stores: Path, describe: Describe) -> None:
    with denied(kafka4, "User:CN=carol"):
        for trust, own in (("authority.pem", "client.pem"), ("trust.p12", "client.p12"), ("trust.jks", "client.jks")):
            code, _, err = describe(kafka4.tls_bootstrap, tls_properties(key_stores, trust, own))
            assert (code, own in err) == (1, False)
            assert "ClusterAuthorizationException: Cluster authorization failed." in err.splitlines()[1]
            assert err.splitlines()[2].startswith("hint: kafka-acls --add --cluster --operation DescribeConfigs ")
            nobody = tls_properties(key_stores, trust, None)
            assert describe(kafka4.tls_bootstrap, nobody) == (0, "", ""), "without a certificate it is ANONYMOUS"


def test_an_authority_that_is_not_trusted_is_told(kafka4: Kafka, key_stores: Path, describe: Describe) -> None:
    code, _, err = describe(kafka4.tls_bootstrap, {"security.protocol": "SSL"})
    assert (code, key_stores.name in err) == (1, False)
    assert "org.apache.kafka.common.errors.SslAuthenticationException: no TLS connection" in err.splitlines()[1]


@pytest.mark.parametrize("property_name", ["ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"])
def test_a_wrong_password_of_a_store_is_told(key_stores: Path, describe: Describe, property_name: str) -> None:
    properties = {**tls_properties(key_stores, "trust.jks", "client.jks"), property_name: "n0t-it"}
    code, _, err = describe("127.0.0.1:1", properties)
    assert (code, "another password" in err, "n0t-it" in err) == (1, True, False)
    if property_name != "ssl.key.password":
        properties = {**tls_properties(key_stores, "trust.p12", "client.p12"), property_name: "n0t-it"}
        code, _, err = describe("127.0.0.1:1", properties)
        assert (code, "can't be opened as PKCS12" in err, "n0t-it" in err) == (1, True, False)


def tls_properties(folder: Path, trust: str, own: str | None) -> dict[str, str]:
    """The client properties for a trust store and the client's own key store, or none of the latter."""
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(folder / trust),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    if own is None:
        return properties
    key = {"ssl.keystore.location": str(folder / own), "ssl.keystore.password": STORE_PASSWORD}
    return properties | key | ({"ssl.key.password": KEY_PASSWORD} if own.endswith(".jks") else {})


def unsigned_token(subject: str) -> str:
    """A token without signature for a user, valid for about as long as Kafka can count."""
    parts = ({"alg": "none"}, {"sub": subject, "iat": 1e9, "exp": 4e9})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, ""))


@contextmanager
def token_endpoint() -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """The address of an endpoint that gives tokens for alice, and its requests.

    Below `/refuses` it gives none, and `/moved` is redirected.
    """
    asked: list[tuple[str, dict[str, list[str]]]] = []

    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], parse_qs(body)))
            refused = self.path.endswith("/refuses")
            if self.path.endswith("/moved"):
                self.send_response(302)
                self.send_header("Location", "/token")
            else:
                self.send_response(401 if refused else 200)
            self.end_headers()
            self.wfile.write(b"{}" if refused else json.dumps({"access_token": unsigned_token("alice")}).encode())

        def do_GET(self) -> None:
            asked.append((self.headers["Authorization"], {}))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": unsigned_token("alice")}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def denied(kafka: Kafka, principal: str) -> Iterator[None]:
    """While it lasts a principal may do nothing with the cluster, and everybody else what they could."""
    pattern = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    acls = [
        ACL(principal=who, host="*", operation=ACLOperation.ALL, permission_type=permission, resource_pattern=pattern)
        for who, permission in ((principal, ACLPermissionType.DENY), ("User:*", ACLPermissionType.ALLOW))
    ]
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_acls(acls)
    assert Polling(0.05).until(lambda: len(_acls(admin)) >= len(acls), timeout_s=240)
    try:
        yield
    finally:
        admin.delete_acls(acls)
        assert Polling(0.05).until(lambda: not _acls(admin), timeout_s=240)
        admin.close()


def _acls(admin: KafkaAdminClient) -> list[object]:
    from kafka.admin import ACLFilter  # noqa: PLC0415

    anything = ACLFilter(
        principal=None,
        host="*",
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
    )
    return list(admin.describe_acls(anything)[0])


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)

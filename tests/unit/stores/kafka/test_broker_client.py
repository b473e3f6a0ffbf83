"""A client of one broker: its properties, its connection and its errors."""

import ssl
import subprocess
from pathlib import Path

import pytest
from tests.support.frames.key_store_samples import KEY_PASSWORD, KEY_STORE, STORE_PASSWORD, TRUST_STORE

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.kafka.broker_client import KafkaAccess, kafka_access, tls_refusal
from kafka_quotas.stores.security.sasl import parse_jaas
from kafka_quotas.stores.zookeeper.session import kazoo_arguments, zookeeper_tls


@pytest.mark.parametrize(
    ("reason", "verify_message", "told", "hint"),
    [
        ("CERTIFICATE_VERIFY_FAILED", "self-signed certificate", "self-signed certificate", "check the trust store"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "", "tlsv13 alert certificate required", "ssl.keystore.location"),
        ("WRONG_VERSION_NUMBER", "", "wrong version number", "most likely speaks plaintext"),
        ("", "", "odd", "check the trust store"),
    ],
)
def test_a_failure_of_tls_has_a_reason_and_a_hint(reason: str, verify_message: str, told: str, hint: str) -> None:
    error = ssl.SSLCertVerificationError(1, "odd") if verify_message else ssl.SSLError(1, "odd")
    error.reason = reason
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = verify_message
    refusal = tls_refusal(error, server="broker:9093")
    assert refusal.message.startswith(f"no TLS connection to broker:9093: {told}")
    assert hint in (refusal.hint or "")
    assert refusal.code == "SSL_AUTHENTICATION_FAILED"


PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s;=\\"x";'
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required username=alice password='se cret' ;"


class TestJaas:
    def test_reads_module_and_options(self) -> None:
        login = parse_jaas(PLAIN, property_name="p")
        assert login.module.endswith("PlainLoginModule")
        assert login.options == {"username": "alice", "password": 's;="x'}
        assert parse_jaas(DIGEST, property_name="p").options == {"username": "alice", "password": "se cret"}

    @pytest.mark.parametrize(
        "text",
        ["", "x", "Module required", "Module required a=b", "M sometimes a=b;", "M required a b;", 'M required a="b;'],
    )
    def test_refuses_what_is_no_entry_without_showing_it(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"^sasl\.jaas\.config ") as caught:
            parse_jaas(text, property_name="sasl.jaas.config")
        assert caught.value.hint

    def test_a_password_is_in_no_representation(self) -> None:
        assert "se cret" not in repr(parse_jaas(DIGEST, property_name="p"))
        assert "se cret" not in repr(StoreSettings(client_properties={"sasl.jaas.config": DIGEST}))

    def test_names_the_option_that_is_missing(self) -> None:
        login = parse_jaas("M required username=a;", property_name="p")
        with pytest.raises(UsageError, match="p has no password"):
            login.option("password", property_name="p")


class TestKafka:
    def test_plaintext_is_the_default(self) -> None:
        assert kafka_access({"linger.ms": "5"}) == KafkaAccess(client_id="kafka-quotas")

    def test_sasl(self) -> None:
        properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
        access = kafka_access({**properties, "client.id": "me"})
        assert (access.client_id, access.tls) == ("me", None)
        assert access.login is not None
        assert access.login.mechanism == "PLAIN"
        assert list(access.login.begin("broker.example")) == [b'\0alice\0s;="x']
        assert "alice" not in repr(access)

    @pytest.mark.parametrize(
        ("properties", "problem"),
        [
            ({"security.protocol": "TLS"}, "security.protocol: TLS"),
            ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
            ({"security.protocol": "SASL_SSL", "sasl.mechanism": "NTLM"}, "NTLM is not supported"),
            ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
            ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such"}, "cannot read /no/such"),
        ],
    )
    def test_refuses_with_a_hint_or_a_reason(self, properties: dict[str, str], problem: str) -> None:
        with pytest.raises(UsageError, match=problem):
            kafka_access(properties)

    def test_tls_with_a_key_of_ones_own(self, tmp_path: Path) -> None:
        certificate, key = _self_signed(tmp_path)
        both = tmp_path / "both.pem"
        both.write_text(key.read_text() + certificate.read_text())
        by_file = {"ssl.truststore.location": str(certificate), "ssl.keystore.location": str(both)}
        by_text = {
            "ssl.truststore.certificates": certificate.read_text(),
            "ssl.keystore.key": key.read_text(),
            "ssl.keystore.certificate.chain": certificate.read_text(),
            "ssl.endpoint.identification.algorithm": "",
        }
        for properties, checks_name in ((by_file, True), (by_text, False)):
            context = kafka_access({"security.protocol": "SSL", **properties}).tls
            assert context is not None
            assert context.verify_mode is ssl.CERT_REQUIRED
            assert context.check_hostname is checks_name
            assert len(context.get_ca_certs()) == 1

    def test_a_key_that_does_not_fit_is_refused(self, tmp_path: Path) -> None:
        certificate, _ = _self_signed(tmp_path)
        properties = {"security.protocol": "SSL", "ssl.keystore.location": str(certificate)}
        with pytest.raises(UsageError, match="key or certificate"):
            kafka_access(properties)


def _asked_of_zookeeper(properties: dict[str, str]) -> None:
    kazoo_arguments(properties)
    zookeeper_tls(properties)


class TestZooKeeper:
    def test_nothing_asked_nothing_given(self) -> None:
        assert kazoo_arguments({"security.protocol": "SSL"}) == {}

    def test_digest_and_sasl(self) -> None:
        arguments = kazoo_arguments({"zookeeper.auth": "digest:alice:se:cret", "zookeeper.sasl.jaas.config": DIGEST})
        assert arguments == {
            "auth_data": [("digest", "alice:se:cret")],
            "sasl_options": {"mechanism": "DIGEST-MD5", "username": "alice", "password": "se cret"},
        }

    def test_tls(self, tmp_path: Path) -> None:
        certificate, _ = _self_signed(tmp_path)
        properties = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(certificate),
            "zookeeper.ssl.endpoint.identification.algorithm": "",
        }
        context = zookeeper_tls(properties)
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
        assert len(context.get_ca_certs()) == 1
        assert zookeeper_tls({**properties, "zookeeper.ssl.client.enable": "false"}) is None

    def test_java_key_stores(self, tmp_path: Path) -> None:
        for name, content in (("trust", TRUST_STORE), ("key", KEY_STORE)):
            (tmp_path / f"{name}.jks").write_bytes(content)
        properties = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(tmp_path / "trust.jks"),
            "zookeeper.ssl.keystore.location": str(tmp_path / "key.jks"),
            "zookeeper.ssl.keystore.password": STORE_PASSWORD,
            "zookeeper.ssl.key.password": KEY_PASSWORD,
        }
        context = zookeeper_tls(properties)
        assert context is not None
        (authority,) = context.get_ca_certs()
        assert authority["subject"] == ((("commonName", "authority"),),)
        with pytest.raises(UsageError, match=r"^zookeeper\.ssl\.keystore\.location: "):
            zookeeper_tls({**properties, "zookeeper.ssl.key.password": "wrong", "zookeeper.ssl.keystore.password": ""})

    @pytest.mark.parametrize(
        ("properties", "problem"),
        [
            ({"zookeeper.auth": "alice"}, "SCHEME:CREDENTIAL"),
            ({"zookeeper.auth": "digest:alice"}, "SCHEME:CREDENTIAL"),
            (
                {"zookeeper.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
                "Krb5LoginModule",
            ),
            (
                {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.crl.enable": "true"},
                r"^zookeeper\.ssl\.crl\.enable is not supported",
            ),
        ],
    )
    def test_refuses_with_a_hint(self, properties: dict[str, str], problem: str) -> None:
        with pytest.raises(UsageError, match=problem) as caught:
            _asked_of_zookeeper(properties)
        assert caught.value.hint


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "value"),
        [("k=\u00e9".encode(), "\u00e9"), ("k=\u00e9".encode("latin-1"), "\u00e9"), ("\ufeffk=1".encode(), "1")],
    )
    def test_property_files_are_utf8_or_latin1(self, tmp_path: Path, content: bytes, value: str) -> None:
        file = tmp_path / "client.properties"
        file.write_bytes(content)
        assert read_properties(file) == {"k": value}

    def test_a_missing_file_is_a_usage_error(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"(?i)no such file"):
            read_properties(tmp_path / "none")


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key, as PEM files."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key

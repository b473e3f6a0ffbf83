"""Key stores: JKS byte by byte, what is refused by name, and TLS contexts out of client properties."""

import base64
import hashlib
import re
import ssl
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.frames.key_store_samples import KEY_PASSWORD, KEY_STORE, STORE_PASSWORD, TRUST_STORE

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.security.tls import read_jks, read_key_store, tls_context

KEY_DIGEST = "fef36f023aca62009af98a6da423bc7a966a857dd7a7c8805130c1872aa7907b"
"""SHA-256 of the key in PKCS#8 form, as openssl gave it."""


class TestJks:
    def test_reads_trusted_certificates(self) -> None:
        store = read_jks(TRUST_STORE, STORE_PASSWORD, None)
        assert store.key_and_chain == ""
        (certificate,) = store.trusted
        assert b"authority" in ssl.PEM_cert_to_DER_cert(certificate)

    def test_opens_the_key(self) -> None:
        store = read_jks(KEY_STORE, STORE_PASSWORD, KEY_PASSWORD)
        key = store.key_and_chain
        assert [b"carol" in ssl.PEM_cert_to_DER_cert(each) for each in store.trusted] == [True]
        assert key.count("BEGIN CERTIFICATE") == 2
        match = re.match(r"-----BEGIN PRIVATE KEY-----(.*?)-----END", key, re.DOTALL)
        assert match is not None
        assert hashlib.sha256(base64.b64decode(match[1])).hexdigest() == KEY_DIGEST

    def test_a_password_is_needed_for_keys_only(self) -> None:
        assert len(read_jks(TRUST_STORE, None, None).trusted) == 1
        assert read_jks(KEY_STORE, None, None).key_and_chain == ""

    def test_tells_a_changed_file_and_a_wrong_password(self) -> None:
        changed = TRUST_STORE[:-30] + bytes([TRUST_STORE[-30] ^ 1]) + TRUST_STORE[-29:]
        for content, password in ((changed, STORE_PASSWORD), (TRUST_STORE, "other")):
            with pytest.raises(UsageError, match="has another password, or was changed"):
                read_jks(content, password, None)
        with pytest.raises(UsageError, match="has a key under another password"):
            read_jks(KEY_STORE, STORE_PASSWORD, "other")

    @pytest.mark.parametrize("length", range(4, len(TRUST_STORE) - 20, 7))
    def test_a_file_that_ends_early_is_broken(self, length: int) -> None:
        with pytest.raises(UsageError, match="is a broken JKS file"):
            read_jks(TRUST_STORE[:length] + bytes(20), None, None)


class TestKeyStore:
    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"\xce\xce\xce\xce rest", "JCEKS file, which is not supported"),
            (b"rubbish", "neither a PEM, PKCS12 nor JKS file"),
            (b"", "neither a PEM, PKCS12 nor JKS file"),
            (b"\x30\x03\x02\x01\x00", "can't be opened as PKCS12"),
        ],
    )
    def test_refuses_other_files_by_name(self, tmp_path: Path, content: bytes, problem: str) -> None:
        file = tmp_path / "store"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=problem) as caught:
            read_key_store({"ssl.truststore.location": str(file)}, "truststore")
        assert caught.value.message.startswith(f"ssl.truststore.location: {file} ")

    def test_a_declared_type_decides_nothing_unless_it_is_none_of_ours(self, tmp_path: Path) -> None:
        file = tmp_path / "store"
        file.write_bytes(TRUST_STORE)
        properties = {"ssl.truststore.location": str(file), "ssl.truststore.type": "PKCS12"}
        store = read_key_store(properties, "truststore")
        assert store is not None
        assert len(store.trusted) == 1
        with pytest.raises(UsageError, match=r"^ssl\.truststore\.type: BCFKS is not supported"):
            read_key_store({**properties, "ssl.truststore.type": "BCFKS"}, "truststore")

    def test_says_what_pkcs12_takes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "store"
        file.write_bytes(b"\x30\x03\x02\x01\x00")
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
        with pytest.raises(UsageError, match="takes the library cryptography") as caught:
            read_key_store({"ssl.keystore.location": str(file)}, "keystore")
        assert "install 'cryptography" in (caught.value.hint or "")

    def test_a_key_is_in_no_representation(self, tmp_path: Path) -> None:
        file = tmp_path / "store"
        file.write_bytes(KEY_STORE)
        properties = {"location": str(file), "password": STORE_PASSWORD}
        named = {f"ssl.keystore.{name}": value for name, value in properties.items()}
        store = read_key_store({**named, "ssl.key.password": KEY_PASSWORD}, "keystore")
        assert store is not None
        assert "PRIVATE KEY" in store.key_and_chain
        assert "PRIVATE KEY" not in repr(store)


class TestTlsContext:
    def test_trusts_what_a_jks_file_holds(self, tmp_path: Path) -> None:
        file = tmp_path / "trust.jks"
        file.write_bytes(TRUST_STORE)
        context = tls_context({"ssl.truststore.location": str(file)})
        assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "authority"),),)]
        assert context.verify_mode is ssl.CERT_REQUIRED

    def test_loads_the_key_of_a_jks_file(self, tmp_path: Path) -> None:
        file = tmp_path / "client.jks"
        file.write_bytes(KEY_STORE)
        named = {"ssl.keystore.location": str(file), "ssl.keystore.password": STORE_PASSWORD}
        tls_context({**named, "ssl.key.password": KEY_PASSWORD})
        with pytest.raises(UsageError, match="has a key under another password"):
            tls_context(named)

    def test_elsewhere_than_on_linux_the_key_is_in_a_file_for_a_moment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, moment = tmp_path / "client.jks", tmp_path / "moment"
        file.write_bytes(KEY_STORE)
        moment.mkdir()
        modes: list[int] = []
        load = ssl.SSLContext.load_cert_chain

        def loaded(self: ssl.SSLContext, path: str, **more: str) -> None:
            modes.append(Path(path).stat().st_mode & 0o777)
            assert Path(path).parent == moment
            load(self, path, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(tempfile, "tempdir", str(moment))
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loaded)
        passwords = {"ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": KEY_PASSWORD}
        tls_context({"ssl.keystore.location": str(file), **passwords})
        assert (modes, list(moment.iterdir())) == ([0o600], [])

    def test_a_store_without_what_is_wanted_is_told(self, tmp_path: Path) -> None:
        trust, empty = tmp_path / "trust.jks", tmp_path / "empty.pem"
        trust.write_bytes(TRUST_STORE)
        empty.write_text("-----BEGIN NOTHING-----\n-----END NOTHING-----\n")
        with pytest.raises(UsageError, match=r"ssl\.keystore\.location holds no key"):
            tls_context({"ssl.keystore.location": str(trust)})
        with pytest.raises(UsageError, match=r"ssl\.truststore\.location holds no certificate"):
            tls_context({"ssl.truststore.location": str(empty)})

    @pytest.mark.parametrize(
        ("properties", "lowest", "highest"),
        [
            ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"}, "TLSv1_2", "TLSv1_3"),
            ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
            ({"ssl.protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ],
    )
    def test_versions(self, properties: dict[str, str], lowest: str, highest: str) -> None:
        context = tls_context(properties)
        assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)

    @pytest.mark.parametrize("properties", [{"ssl.enabled.protocols": "TLSv1"}, {"ssl.protocol": "SSLv3"}])
    def test_versions_that_are_too_old(self, properties: dict[str, str]) -> None:
        with pytest.raises(UsageError, match="is not supported"):
            tls_context(properties)

"""Users for a broker that is started for a load test, with passwords or certificates for one run."""

import secrets
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_quotas.commands.testbed.kafka_broker import KafkaServerError, SecuredListener
from kafka_quotas.loadtest.scenario.model import Security

_SCRAM: Final = "SCRAM-SHA-256"
_MODULES: Final = "org.apache.kafka.common.security"
_TOOL_TIMEOUT_S: Final = 60.0
_DAYS: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """A listener for some users, and the properties of its clients (librdkafka's names)."""

    listener: SecuredListener
    common: Mapping[str, str]
    """Client properties of all clients."""
    by_user: Mapping[str, tuple[tuple[str, str], ...]] = field(repr=False)
    """Client properties of each user."""


def broker_security(security: Security, users: Iterable[str], *, folder: Path, java: Path) -> BrokerSecurity | None:
    """Create the security of a scenario in the folder, None for plaintext.

    Raises:
        KafkaServerError: Certificates can't be made without the `keytool` that comes with Java.
    """
    names = sorted(set(users))
    if security is Security.PLAINTEXT:
        return None
    if security is Security.TLS:
        return _tls(names, folder, java.with_name("keytool"))
    return _sasl({name: secrets.token_hex(12) for name in names}, scram=security is Security.SASL_SCRAM)


def _sasl(passwords: Mapping[str, str], *, scram: bool) -> BrokerSecurity:
    mechanism = _SCRAM if scram else "PLAIN"
    known = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    module = f"{_MODULES}.scram.ScramLoginModule" if scram else f"{_MODULES}.plain.PlainLoginModule"
    login = f"{module} required;" if scram else f"{module} required {known};"
    arguments = []
    for name, password in passwords.items():
        arguments += ["--add-scram", f"{_SCRAM}=[name={name},iterations=4096,password={password}]"]
    return BrokerSecurity(
        listener=SecuredListener(
            protocol="SASL_PLAINTEXT",
            settings={
                "sasl.enabled.mechanisms": mechanism,
                f"listener.name.secured.{mechanism.lower()}.sasl.jaas.config": login,
            },
            scram=tuple(arguments) if scram else (),
        ),
        common={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism},
        by_user={name: (("sasl.username", name), ("sasl.password", password)) for name, password in passwords.items()},
    )


def _tls(users: Iterable[str], folder: Path, keytool: Path) -> BrokerSecurity:
    """Create self-signed certificates for the broker and for each user.

    All are trusted. A user's name is the subject (`CN=..`) of its certificate.
    """
    password = secrets.token_hex(12)
    trust = folder / "trust.p12"
    stores = {user: folder / f"client-{number}.p12" for number, user in enumerate(users)}
    _make(keytool, folder / "broker.p12", "CN=127.0.0.1", password)
    authority = _exported(keytool, folder / "broker.p12", password)
    for user, store in stores.items():
        _make(keytool, store, user, password)
        certificate = _exported(keytool, store, password)
        options = ["-importcert", "-noprompt", "-alias", certificate.stem, "-file", str(certificate)]
        _run([str(keytool), *options, *_store(trust, password)])
    settings = {
        "listener.name.secured.ssl.keystore.type": "PKCS12",
        "listener.name.secured.ssl.keystore.location": str(folder / "broker.p12"),
        "listener.name.secured.ssl.keystore.password": password,
        "listener.name.secured.ssl.client.auth": "requested",
    }
    if stores:
        settings |= {
            "listener.name.secured.ssl.truststore.type": "PKCS12",
            "listener.name.secured.ssl.truststore.location": str(trust),
            "listener.name.secured.ssl.truststore.password": password,
        }
    return BrokerSecurity(
        listener=SecuredListener(protocol="SSL", settings=settings),
        common={"security.protocol": "SSL", "ssl.ca.location": str(authority)},
        by_user={
            user: (("ssl.keystore.location", str(store)), ("ssl.keystore.password", password))
            for user, store in stores.items()
        },
    )


def _make(keytool: Path, store: Path, subject: str, password: str) -> None:
    """Create a store with a key and its self-signed certificate for 127.0.0.1."""
    options = ["-genkeypair", "-alias", "own", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS]
    names = ["-dname", subject, "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c=ca:true"]
    _run([str(keytool), *options, *names, *_store(store, password)])


def _exported(keytool: Path, store: Path, password: str) -> Path:
    """Export the store's certificate as PEM and return the file."""
    target = store.with_suffix(".pem")
    _run([str(keytool), "-exportcert", "-rfc", "-alias", "own", "-file", str(target), *_store(store, password)])
    return target


def _store(path: Path, password: str) -> list[str]:
    return ["-keystore", str(path), "-storetype", "PKCS12", "-storepass", password]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaServerError(
            f"certificates can't be made: {error}", hint="they need the keytool that comes with Java"
        ) from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise KafkaServerError(f"certificates can't be made: {lines[0] if lines else done.returncode}")

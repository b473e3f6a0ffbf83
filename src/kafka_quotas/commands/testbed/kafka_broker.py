"""A real Kafka broker as a child process, its users, and Kafka's own quota managers as the judge of throttle times.

The broker is one KRaft node on 127.0.0.1 with its request log on. It ends with this process, even if that is killed.
Its jars are fetched once by Maven from Kafka's public releases. The judge compiles one source file against them, so it
needs a JDK. Without one, or with the jars of a release whose classes differ, there is no answer, and the caller has
another judge.
"""

import base64
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Final

from kafka_quotas.commands.testbed.child_process import child_command
from kafka_quotas.commands.testbed.daemon_process import end_process, free_ports, last_line
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.extras import find_java
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Event, EventOperation
from kafka_quotas.loadtest import Security, ThrottleJudge, Workload

VERSION: Final = "4.3.1"
_FETCH_TIMEOUT_S: Final = 300
BROKER_ID: Final = 1
REQUEST_LOG: Final = "kafka-request.log"
_SECURED: Final = "SECURED"
_READY_S: Final = 180.0
_FORMAT_S: Final = 180.0
_STOP_S: Final = 20.0
_LOOK_S: Final = 0.2


class KafkaServerError(KafkaQuotasError):
    """Kafka's server could not be fetched or did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """A second listener of a broker, where users authenticate, and the properties of its clients."""

    protocol: str = ""
    """Security protocol, empty for no such listener."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Broker properties of the listener."""
    scram: tuple[str, ...] = field(default=(), repr=False)
    """Arguments for formatting the broker's storage, which may hold passwords."""
    common: Mapping[str, str] = field(default_factory=dict)
    """Properties of all clients, by librdkafka's names."""
    by_user: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, repr=False)
    """Further properties of each user."""


PLAINTEXT: Final = BrokerSecurity()


@contextmanager
def running_broker(
    *,
    java: Path,
    jars: Path,
    folder: Path,
    window: QuotaWindow,
    security: BrokerSecurity = PLAINTEXT,
    settings: Mapping[str, str] = MappingProxyType({}),
    logs_requests: bool = True,
    heap_mb: int = 512,
) -> Iterator[tuple[str, str]]:
    """Run a broker for the block, with all its files in the folder, among them the request log, in UTC.

    `settings` are further lines of `server.properties`.

    Yields:
        Its address, and that of the listener with authentication, empty for none.

    Raises:
        KafkaServerError: The broker does not start. The message has the last line of its log.
    """
    port = free_ports(3)
    log, bootstrap = folder / "broker.log", f"127.0.0.1:{port}"
    level = "DEBUG" if logs_requests else "WARN"
    logging = _written(folder, "log4j2.properties", folder=folder, request_log=REQUEST_LOG, requests=level)
    listeners = f"PLAINTEXT://{bootstrap},CONTROLLER://127.0.0.1:{port + 1}"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    secured = f"127.0.0.1:{port + 2}" if security.protocol else ""
    if secured:
        listeners += f",{_SECURED}://{secured}"
        protocols += f",{_SECURED}:{security.protocol}"
    properties = _written(
        folder,
        "server.properties",
        node=BROKER_ID,
        controller=port + 1,
        listeners=listeners,
        protocols=protocols,
        folder=folder,
        samples=window.samples,
        window=window.window_s,
    )
    with properties.open("a", encoding="utf-8") as file:  # of two lines with one name the last counts
        file.writelines(f"{name}={value}\n" for name, value in {**security.settings, **settings}.items())
    options = ["-Xms64m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-Duser.timezone=UTC"]
    machine = [str(java), *options, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    tool = ["kafka.tools.StorageTool", "format", "--standalone", f"--cluster-id={cluster_id}", "-c", str(properties)]
    _run([*machine, *tool, *security.scram], "the broker's storage can't be formatted", timeout_s=_FORMAT_S, at=-1)
    with log.open("wb") as sink:
        process = subprocess.Popen(  # noqa: S603 - Kafka
            child_command([*machine, "kafka.Kafka", str(properties)]),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
        )
        try:
            _wait_until_serving(process, bootstrap, log)
            yield bootstrap, secured
        finally:
            end_process(process, (signal.SIGTERM, _STOP_S), (signal.SIGKILL, None))


def _run(command: Sequence[str], failure: str, *, timeout_s: float, at: int = 0, hint: str | None = None) -> None:
    """Run a program to its end, or raise the failure with one line of what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)  # noqa: S603 - Java, Maven
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaServerError(f"{failure}: {error}", hint=hint) from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise KafkaServerError(f"{failure}: {lines[at] if lines else done.returncode}")


def _written(target: Path, name: str, **values: object) -> Path:
    """Write a file that comes with this module into a folder, with the values in their places."""
    path = target / name
    path.write_text(Template(Path(__file__).with_name(name).read_text(encoding="utf-8")).substitute(values), "utf-8")
    return path


def _wait_until_serving(process: "subprocess.Popen[bytes]", bootstrap: str, log: Path) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    deadline_s = time.monotonic() + _READY_S
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "kafka-quotas-demo", "log_level": 0})
    while True:
        if process.poll() is not None:
            text = log.read_text(encoding="utf-8", errors="replace")
            raise KafkaServerError(f"the broker ended with exit code {process.returncode}: {last_line(text)}")
        with suppress(KafkaException):
            if admin.list_topics(timeout=1.0).brokers:
                return
        if time.monotonic() > deadline_s:
            raise KafkaServerError(f"the broker did not serve within {_READY_S:.0f} s")
        time.sleep(_LOOK_S)


def kafka_jars(folder: Path) -> Path:
    """Fetch every jar of one release into the folder, unless it exists, and return it.

    An existing folder is complete.

    Raises:
        KafkaServerError: Maven is missing or fails.
    """
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaServerError(f"Kafka's jars are not in {folder}, and Maven (mvn) to fetch them is not installed")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kafka-jars-") as scratch:
            jars, pom = Path(scratch) / "jars", _written(Path(scratch), "jars.pom.xml", release=VERSION)
            goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
            command = [maven, "-B", "-ntp", "-q", "-f", str(pom), *goal]
            _run(command, f"Maven cannot fetch Kafka {VERSION}", timeout_s=_FETCH_TIMEOUT_S)
            jars.rename(folder)
    except OSError as error:
        raise KafkaServerError(f"cannot fetch Kafka's jars: {error}") from error
    return folder


_SCRAM: Final = "SCRAM-SHA-256"
_MODULES: Final = "org.apache.kafka.common.security"
_TOOL_TIMEOUT_S: Final = 60.0
_DAYS: Final = "2"


def broker_security(security: Security, users: Iterable[str], *, folder: Path, java: Path) -> BrokerSecurity:
    """Create the security of a scenario in the folder.

    Raises:
        KafkaServerError: Certificates can't be made without the `keytool` that comes with Java.
    """
    names = sorted(set(users))
    if security is Security.PLAINTEXT:
        return PLAINTEXT
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
        protocol="SASL_PLAINTEXT",
        settings={
            "sasl.enabled.mechanisms": mechanism,
            f"listener.name.secured.{mechanism.lower()}.sasl.jaas.config": login,
        },
        scram=tuple(arguments) if scram else (),
        common={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism},
        by_user={name: (("sasl.username", name), ("sasl.password", password)) for name, password in passwords.items()},
    )


def _tls(users: Iterable[str], folder: Path, keytool: Path) -> BrokerSecurity:
    """Create self-signed certificates for the broker and for each user.

    All are trusted. A user's name is the subject (`CN=..`) of its certificate.
    """
    password = secrets.token_hex(12)

    def call(store: Path, *options: str) -> None:
        command = [str(keytool), *options, "-keystore", str(store), "-storetype", "PKCS12", "-storepass", password]
        hint = "they need the keytool that comes with Java"
        _run(command, "certificates can't be made", timeout_s=_TOOL_TIMEOUT_S, hint=hint)

    def made(store: Path, subject: str) -> Path:
        """Make a store with a key, and return the file with its certificate."""
        key = ("-alias", "own", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS, "-dname", subject)
        call(store, "-genkeypair", *key, "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c=ca:true")
        certificate = store.with_suffix(".pem")
        call(store, "-exportcert", "-rfc", "-alias", "own", "-file", str(certificate))
        return certificate

    def settings_of(kind: str, store: Path) -> dict[str, str]:
        values = {"type": "PKCS12", "location": str(store), "password": password}
        return {f"listener.name.secured.ssl.{kind}.{name}": value for name, value in values.items()}

    own, trust = folder / "broker.p12", folder / "trust.p12"
    stores = {user: folder / f"client-{number}.p12" for number, user in enumerate(users)}
    authority = made(own, "CN=127.0.0.1")
    for user, store in stores.items():
        certificate = made(store, user)
        call(trust, "-importcert", "-noprompt", "-alias", certificate.stem, "-file", str(certificate))
    settings = {**settings_of("keystore", own), "listener.name.secured.ssl.client.auth": "requested"}
    return BrokerSecurity(
        protocol="SSL",
        settings={**settings, **(settings_of("truststore", trust) if stores else {})},
        common={"security.protocol": "SSL", "ssl.ca.location": str(authority)},
        by_user={
            user: (("ssl.keystore.location", str(store)), ("ssl.keystore.password", password))
            for user, store in stores.items()
        },
    )


KAFKA_HOME: Final = "KAFKA_HOME"
_SOURCE: Final = Path(__file__).with_name("ThrottleTimes.java")
_TYPES: Final = {
    Workload.PRODUCE: "PRODUCE",
    Workload.CONSUME: "FETCH",
    Workload.MUTATE: "CONTROLLER_MUTATION",
}
_WORDS: Final = {EventOperation.RECORD_NOCHECK: "quiet", EventOperation.UNRECORD: "unrecord"}
_ORIGIN_MS: Final = 1_700_000_000_000
"""When the first charge happens: a bucket of tokens that was never used is full by then."""
_ANSWER_S: Final = 60.0


def known_jars(folder: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of Kafka's jars that was named, else that of an installed Kafka, else None."""
    if folder is not None:
        return folder
    home = environment.get(KAFKA_HOME)
    installed = Path(home) / "libs" if home else None
    return installed if installed is not None and installed.is_dir() else None


class KafkaClasses:
    """The running managers of one release."""

    def __init__(self, process: "subprocess.Popen[str]", *, name: str) -> None:
        self.name = name
        self._process = process

    def throttle_times(
        self, events: Sequence[Event], *, workload: Workload, quota: float, window: QuotaWindow
    ) -> Sequence[int] | None:
        """Return the throttle time in ms of every recorded event, None where the managers give no answer."""
        kind = _TYPES.get(workload)
        if kind is None or self._process.stdin is None or self._process.stdout is None:
            return None
        lines = [f"{kind} {window.samples} {window.window_s} {quota!r} {len(events)}"]
        for event in events:
            word = "record" if event.operation is None else _WORDS.get(event.operation, "record")
            lines.append(f"{_ORIGIN_MS + round(event.t_ms)} {word} {float(event.amount)!r}")
        watchdog = threading.Timer(_ANSWER_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write("\n".join(lines) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            return [int(figure) for figure in answer.split()] if answer else None
        except (OSError, ValueError):
            return None
        finally:
            watchdog.cancel()


@contextmanager
def kafka_classes(jars: Path | None) -> Iterator[ThrottleJudge | None]:
    """Run the managers of the release in a folder of jars for the block, None without jars or Java."""
    found = [] if jars is None else sorted(jars.glob("kafka-clients-*.jar"))
    release = found[0].stem.partition("kafka-clients-")[2] if found else None
    java = None
    if release is not None:
        with suppress(KafkaQuotasError):
            java = find_java()
    if java is None:
        yield None
        return
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    process = subprocess.Popen(  # noqa: S603 - Java
        child_command([str(java), *options, str(_SOURCE)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="ascii",
    )
    try:
        yield KafkaClasses(process, name=f"Kafka {release}'s own classes")
    finally:
        process.kill()
        with suppress(OSError):  # what is buffered has nobody to read it
            process.communicate()

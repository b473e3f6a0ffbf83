"""A Kerberos realm on 127.0.0.1 from Debian's packages, and a Kafka broker whose SASL listener takes its tickets.

with kerberos_realm(folder) as realm, kerberized_kafka(realm) as kafka:
    realm.environment                 # variables for whoever logs in
    realm.keytabs["alice"]            # of alice@KAFKA.TEST
    kafka                             # bootstrap of the SASL listener, by the name in the broker's principal
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers.java_process import STOP_TIMEOUT_S, free_port
from tests.support.brokers.maven import MissingServerError
from tests.support.brokers.servers import kafka_4
from tests.support.processes.awaiting import await_true

REALM = "KAFKA.TEST"
HOST = "localhost"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
PACKAGES = "krb5-kdc, krb5-admin-server and krb5-user"
_SBIN = "/usr/sbin"
_USERS = ("alice", "bob", f"kafka/{HOST}")


def missing_programs() -> list[str]:
    """Those of a KDC that this machine lacks."""
    return [name for name in PROGRAMS if _found(name) is None]


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosRealm:
    """A running KDC, its configuration, and a keytab for each of its principals."""

    configuration: Path
    environment: Mapping[str, str]
    keytabs: Mapping[str, Path]

    def run(self, program: str, *arguments: str) -> None:
        """Run one of Kerberos' programs in this realm."""
        command = [_found(program) or program, *arguments]
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise MissingServerError(f"{' '.join(command)}: {done.stderr}")


@contextmanager
def kerberos_realm(folder: Path) -> Iterator[KerberosRealm]:
    """A realm whose database and files are in the folder, and whose KDC ends here.

    Raises `MissingServerError` where a program is missing or fails.
    """
    if missing_programs():
        raise MissingServerError(f"no {', '.join(missing_programs())} on this machine: apt install {PACKAGES}")
    port = free_port()
    configuration, profile = folder / "krb5.conf", folder / "kdc.conf"
    configuration.write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
        "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
        f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{port}\n}}\n[domain_realm]\n{HOST} = {REALM}\n"
        f"[logging]\nkdc = FILE:{folder}/kdc.log\n"
    )
    profile.write_text(
        f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n{REALM} = {{\n"
        f"database_name = {folder}/principal\nkey_stash_file = {folder}/stash\nacl_file = {folder}/acl\n}}\n"
    )
    environment = {
        "KRB5_CONFIG": str(configuration),
        "KRB5_KDC_PROFILE": str(profile),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
    }
    keytabs = {name: folder / f"{name.replace('/', '-')}.keytab" for name in _USERS}
    realm = KerberosRealm(configuration=configuration, environment=environment, keytabs=keytabs)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-the-database")
    for name, keytab in keytabs.items():
        realm.run("kadmin.local", "-q", f"addprinc -randkey {name}")
        realm.run("kadmin.local", "-q", f"ktadd -k {keytab} -norandkey {name}")
    kdc = subprocess.Popen(
        [_found("krb5kdc") or "krb5kdc", "-n"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_true(lambda: kdc.poll() is not None or _gives_tickets(realm), "the KDC gives tickets", timeout_s=30)
        if kdc.poll() is not None:
            raise MissingServerError(f"the KDC ended with {kdc.returncode}")
        yield realm
    finally:
        kdc.terminate()
        kdc.wait(STOP_TIMEOUT_S)


def _gives_tickets(realm: KerberosRealm) -> bool:
    with suppress(MissingServerError):
        realm.run("kinit", "-c", "MEMORY:probe", "-k", "-t", str(realm.keytabs["bob"]), "bob")
        return True
    return False


@contextmanager
def kerberized_kafka(realm: KerberosRealm) -> Iterator[str]:
    """The address of the SASL_PLAINTEXT listener of a Kafka 4 broker, which takes logins by GSSAPI alone."""
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    broker = f"kafka/{HOST}"
    login = f'{module} keyTab="{realm.keytabs[broker]}" principal="{broker}@{REALM}";'
    properties = {
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": login,
        "listener.name.sasl_plaintext.sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.service.name": "kafka",
    }
    options = [f"-Djava.security.krb5.conf={realm.configuration}"]
    with kafka_4(quick_start=True, advertised_host=HOST, properties=properties, options=options) as kafka:
        yield kafka.sasl_bootstrap.replace("127.0.0.1", HOST)

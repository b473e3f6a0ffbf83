"""A context: a named cluster with the address of its store, the login for it, and where its usage is measured.

Invariants: a context holds references to secrets, never secrets: in a file, in an environment variable, or printed by a
command. A secret is read when it is needed, never kept, and never part of a message. The text of a reference shows no
secret either, so it has only the program's name of a command. A login goes to the context's own store and to no other.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import read_properties, read_text
from kafka_quotas.stores.url import StoreKind, parse_store_url

COMMAND_TIMEOUT_S = 60.0
"""Long enough to type the passphrase that a password manager asks for."""


class SecretPlace(StrEnum):
    """The kind of place that holds a secret."""

    FILE = "file"
    VARIABLE = "variable"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A reference to a secret."""

    place: SecretPlace
    where: str
    """The file's path, the variable's name, or the command line."""

    def __str__(self) -> str:
        shown = shlex.split(self.where)[0] if self.place is SecretPlace.COMMAND else self.where
        return f"(secret, from the {self.place} {shown})"

    def read(self, *, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
        """Read the secret, by a path relative to the folder, and remove line ends at its end."""
        match self.place:
            case SecretPlace.FILE:
                text = _read_file(folder / Path(self.where).expanduser())
            case SecretPlace.VARIABLE:
                text = environment.get(self.where, "")
            case SecretPlace.COMMAND:
                text = _read_command(self.where, folder)
        secret = text.rstrip("\r\n")
        if not secret:
            raise KafkaQuotasError(f"a secret is empty: {self}", hint=_HINTS[self.place])
        return secret


_HINTS = {
    SecretPlace.FILE: "write the password into the file, on one line",
    SecretPlace.VARIABLE: "set the variable in the environment of the command",
    SecretPlace.COMMAND: "the command has to print the password on standard output",
}


def secret_at(place: SecretPlace, where: object) -> Secret:
    """Return the reference to a secret by a path, a name, or a command line or list of words."""
    if place is SecretPlace.COMMAND and isinstance(where, list) and all(isinstance(word, str) for word in where):
        where = shlex.join(where)
    if not isinstance(where, str) or not where.strip():
        raise UsageError(f"a secret's {place} is not named", hint="it is a text in quotes")
    if place is SecretPlace.COMMAND:
        try:
            shlex.split(where)
        except ValueError:
            raise UsageError("a password command has a quote that is not closed") from None
    return Secret(place=place, where=where)


def _read_file(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise KafkaQuotasError(f"cannot read the secret in {path}: {reason}") from error


def _read_command(command: str, folder: Path) -> str:
    """Return what the command prints on standard output, while it may prompt on the terminal."""
    words = shlex.split(command)
    try:
        # The command is the user's own, from a file that only the user writes; no shell sees it.
        done = subprocess.run(  # noqa: S603
            words,
            stdout=subprocess.PIPE,
            check=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd=folder if folder.is_dir() else None,
        )
        return done.stdout.decode()
    except subprocess.CalledProcessError as error:
        # Neither the command line nor its output may show up in a traceback.
        raise KafkaQuotasError(f"the password command {words[0]} failed with exit code {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise KafkaQuotasError(f"the password command {words[0]} took longer than {COMMAND_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise KafkaQuotasError(f"cannot run the password command {words[0]}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise KafkaQuotasError(f"the password command {words[0]} printed no UTF-8") from None


_SECRET_NAME = re.compile(
    r"password|passphrase|secret|jaas\.config$|keystore\.key$|zookeeper\.auth$|token$", re.IGNORECASE
)
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A named cluster: its store, a login, further client properties, and what measures its usage."""

    DOCUMENT: ClassVar = "name"
    name: str
    store_url: str
    folder: Path
    """The folder of the contexts file, which relative paths start from."""
    command_config: str | None = None
    username: str | None = None
    """The user who logs in, None without a login."""
    password: Secret | None = None
    properties: Mapping[str, str | Secret] = field(default_factory=dict)
    """Further client properties, secrets as references."""
    control: str | None = None
    prometheus: tuple[str, ...] = ()
    """The URLs of the brokers' metrics, or of the Prometheus server that has them."""
    protected: bool = False
    """Whether a change of its store is asked about first."""

    @property
    def logs_in(self) -> bool:
        """Whether the context sets anything that concerns the login."""
        return bool(self.command_config or self.username or self.properties)

    @property
    def command_config_path(self) -> Path | None:
        """The path of the file of client properties, None without one."""
        return None if self.command_config is None else self.folder / Path(self.command_config).expanduser()

    @property
    def control_path(self) -> Path | None:
        """The path of the control socket, None without one."""
        return None if self.control is None else self.folder / Path(self.control).expanduser()

    def client_properties(self) -> dict[str, str]:
        """Return the client properties, with every secret read and filled in.

        Those of the context override those of the file, and the login overrides both.
        """
        path = self.command_config_path
        found = {} if path is None else read_properties(path)
        for name, value in self.properties.items():
            found[name] = value.read(folder=self.folder) if isinstance(value, Secret) else value
        if self.username is not None and self.password is not None:
            found |= self._login(found, self.password.read(folder=self.folder))
        return found

    def _login(self, properties: Mapping[str, str], password: str) -> dict[str, str]:
        if parse_store_url(self.store_url).kind is StoreKind.ZOOKEEPER:
            return {"zookeeper.sasl.jaas.config": _jaas(_DIGEST_LOGIN, self.username or "", password)}
        scram = properties.get("sasl.mechanism", "").strip().upper().startswith("SCRAM")
        return {
            # Without this the login would be left out without a word; and a password must not travel in the clear.
            "security.protocol": properties.get("security.protocol", "SASL_SSL"),
            "sasl.jaas.config": _jaas(_SCRAM_LOGIN if scram else _PLAIN_LOGIN, self.username or "", password),
        }


def is_secret_property(name: str) -> bool:
    """Return whether a client property of this name holds a secret."""
    return not name.endswith((".location", ".url")) and _SECRET_NAME.search(name) is not None


def checked_context_name(name: str) -> str:
    """Return the name where a context can have it."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise UsageError(f"not a name for a context: {name!r}", hint="letters, digits and . _ - make a name")
    return name


def checked_metrics_url(text: str) -> str:
    """Return the URL where metrics can be read from it, over HTTP."""
    if not re.match(r"https?://[^/\s]+", text):
        raise UsageError(f"not the URL of metrics: {text!r}", hint="for example http://prometheus.example:9090")
    return text


def _jaas(module: str, username: str, password: str) -> str:
    return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

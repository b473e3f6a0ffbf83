"""Secrets that contexts refer to and never hold: in a file, in an environment variable, or printed by a command.

Invariants: a secret is read when it is needed, never kept, and never part of a message. The text of a reference shows
no secret either, so it has only the program's name of a command.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import read_text

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
        """Read the secret, by a path relative to the folder, and remove line ends at its end.

        Raises:
            KafkaQuotasError: The secret can't be read, or is empty.
        """
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

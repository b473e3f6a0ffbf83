"""The one error tree of the project.

Every error a user can meet derives from `KafkaQuotasError` and carries the exit code of the command: 2 for the user's
input, 1 for everything else. Adapters translate foreign exceptions at their own border and chain them.
`kafka_quotas.cli.main.main` is the only place that catches the tree.
"""

from collections.abc import Iterable
from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of SIGINT."""
CLOSED_PIPE: Final = 141
"""The exit code if the reader of standard output ended first, as shells have it: 128 and the number of SIGPIPE."""


class KafkaQuotasError(Exception):
    """An error with a message of one line, a hint that says what to do, and an exit code."""

    exit_code = 1
    message: str
    hint: str | None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def parts(self) -> "tuple[KafkaQuotasError, ...]":
        """The errors to report: this one, or everything that is wrong with a file."""
        return (self,)


class UsageError(KafkaQuotasError):
    """Input that can't be understood or can't be meant, refused before any action."""

    exit_code = 2


class InvalidQuotaError(UsageError):
    """An entity, key or value that the rules of a store refuse.

    `code` is Kafka's name of the error for the same request (`INVALID_REQUEST`, `UNSUPPORTED_VERSION`, ...).
    """

    def __init__(self, message: str, *, code: str = "INVALID_REQUEST", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class StoreError(KafkaQuotasError):
    """A failure of a store."""


class StoreUnreachableError(StoreError):
    """A store address without an answer, or whose answers stopped."""


class UnconfirmedError(StoreUnreachableError):
    """A change that was sent without a response, so that its result is unknown."""


class NotVisibleError(UnconfirmedError):
    """An accepted change that did not show in time when it was read back."""


class StoreRefusedError(StoreError):
    """A refusal by the store: read-only, not authorized, taken over by another controller."""


class ProtocolError(KafkaQuotasError):
    """Bytes that are not the Kafka protocol, after which their connection is unusable."""

    sender: str | None = None
    """The peer that sent them, `client` or `upstream`; None if only one can have."""


class VerdictError(KafkaQuotasError):
    """A complete run whose result is not the required one."""


def near_hint(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str | None:
    """Return the hint for an unknown name: the known name that it resembles, or else another hint."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistyped name pays for it

    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise

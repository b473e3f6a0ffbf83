"""Answers to command lines that other tools would understand: their verbs, and options without a command."""

import shlex
from collections.abc import Collection, Sequence
from typing import Final

from kafka_quotas.core.errors import UsageError

_SET: Final = "alter --user NAME --add-config KEY=VALUE"
_GET: Final = "describe --user NAME, or describe alone for all that is stored"
_REMOVE: Final = "alter --user NAME --delete-config KEY"
_VERBS: Final = {
    "set": _SET,
    "put": _SET,
    "add": _SET,
    "create": _SET,
    "edit": _SET,
    "update": _SET,
    "get": _GET,
    "list": "describe  (--effective --user NAME shows what a client really gets)",
    "ls": _GET,
    "show": _GET,
    "delete": _REMOVE,
    "remove": _REMOVE,
    "rm": _REMOVE,
    "unset": _REMOVE,
    "undo": "revert last, or revert --list for all changes",
    "rollback": "revert last, or revert --list for all changes",
    "plan": "diff FILE, with --out PLAN to keep it for apply",
    "import": "apply FILE",
    "check": "validate FILE for a file, doctor for a store",
    "run": "daemon run, or load-test run SCENARIO",
    "proxy": "daemon run",
    "status": "daemon status, or top",
    "config": "context",
    "profile": "context",
}
"""Verbs of `rpk`, `kcl`, `kubectl`, `git` and others, each with what does the same here."""


def verb_of_other_tools(word: str) -> UsageError | None:
    """Return the error for a verb that other tools have, with our command for it, None for any other word."""
    ours = _VERBS.get(word.lower())
    return None if ours is None else UsageError(f"there is no command {word}", hint=f"kafka-quotas {ours}")


_CHANGES: Final = {"--add-config", "--add-config-file", "--delete-config"}
_READS: Final = {
    "--bootstrap-server",
    "--zookeeper",
    "--store",
    "--context",
    "--user",
    "--client",
    "--ip",
    "--entity-type",
}


def options_without_command(arguments: Sequence[str], commands: Collection[str]) -> UsageError | None:
    """Return the error for options in place of the command, with the command line that was meant.

    `kafka-configs` has its action among the options (`--alter`, `--describe`), other tools take those of the connection
    before the command.

    Args:
        arguments: All arguments after the program's name.
        commands: The names of the commands.

    Returns:
        None where no command has such options.
    """
    options = {each.partition("=")[0] for each in arguments}
    for action in ("alter", "describe"):
        if f"--{action}" in options:
            rest = [each for each in arguments if each != f"--{action}"]
            return UsageError(
                f"{action} is a command, not an option",
                hint=f"{_line(action, rest)} (or kafka-quotas kafka-configs with your options as they are)",
            )
    named = next((index for index, word in enumerate(arguments) if word in commands), None)
    if named is None:
        meant = "alter" if options & _CHANGES else "describe" if options & _READS else None
        if meant is None:
            return None
        return UsageError("no command is named", hint=f"for example: {_line(meant, arguments)}")
    rest = [*arguments[:named], *arguments[named + 1 :]]
    return UsageError("the command comes before its options", hint=_line(arguments[named], rest))


def _line(command: str, rest: Sequence[str]) -> str:
    return shlex.join(["kafka-quotas", command, *rest])

"""Commands and options that were removed, each with what to use instead."""

import re
from typing import Any, Final

REMOVED: Final = {
    "--broker-windows": "leave it out: the brokers of --bootstrap-server are always asked for their windows",
    "--exempt": "alter --user NAME --add-config KEY=unlimited, for each key as in the how-to page on rollout",
    "kafka-quotas --alter": "kafka-quotas alter, or kafka-quotas kafka-configs with your options as they are",
    "kafka-quotas --describe": "kafka-quotas describe, or kafka-quotas kafka-configs with your options as they are",
}
"""The hints by option, by command with option, or by command, as in `kafka-quotas daemon upgrade`."""


def hint_for_removed(error: Any, command_path: str) -> str | None:
    """Return what to use in place of the option or command that an error of Typer names, None if it never was."""
    option = getattr(error, "option_name", None)
    if option is not None:
        return REMOVED.get(f"{command_path} {option}") or REMOVED.get(option)
    command = re.match(r"No such command '([^']+)'", error.message)
    return REMOVED.get(f"{command_path} {command[1]}") if command else None

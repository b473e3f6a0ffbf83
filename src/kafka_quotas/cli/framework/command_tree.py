"""The command tree of the program, walked from its root."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from kafka_quotas.cli.framework.lazy_group import LazyGroup

Command = TyperCommand | TyperGroup


def walk_commands(app: typer.Typer, program: str) -> Iterator[tuple[Command, Any]]:
    """Yield every command and group below a Typer app with a context of it, the program itself first."""
    root = typer.main.get_command(app)
    assert isinstance(root, LazyGroup)
    context = root.context_class(root, info_name=program, **root.context_settings)
    yield root, context
    for name in root.commands:
        yield from _below(root.load(name), name, context)


def _below(command: Command, name: str, parent: Any) -> Iterator[tuple[Command, Any]]:
    context = command.context_class(command, info_name=name, parent=parent)
    yield command, context
    if isinstance(command, TyperGroup):
        for child_name, listed in command.commands.items():
            child = command.load(child_name) if isinstance(command, LazyGroup) else listed
            assert isinstance(child, TyperCommand | TyperGroup)
            yield from _below(child, child_name, context)

"""Contexts: choose one, make, change or remove one.

Each raises a `UsageError` where there is no such context, or the file can't be read or written.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.contexts.context import (
    Context,
    Secret,
    checked_context_name,
    checked_metrics_url,
    is_secret_property,
)
from kafka_quotas.stores.contexts.file import (
    Contexts,
    read_contexts,
    with_context,
    with_current,
    without_context,
    write_contexts,
)
from kafka_quotas.stores.url import parse_store_url


def use_context(path: Path, name: str | None) -> Contexts:
    """Put a context in use, None for no context, and return the contexts."""
    contexts = with_current(read_contexts(path), name)
    write_contexts(contexts)
    return contexts


def remove_context(path: Path, name: str) -> bool:
    """Remove a context and return whether it was the one in use."""
    contexts = read_contexts(path)
    write_contexts(without_context(contexts, name))
    return contexts.current == name


def set_context(
    path: Path,
    name: str,
    *,
    store_url: str | None = None,
    command_config: str | None = None,
    username: str | None = None,
    password: Secret | None = None,
    properties: dict[str, str | Secret] | None = None,
    control: str | None = None,
    prometheus: Sequence[str] = (),
    protected: bool | None = None,
) -> Contexts:
    """Create a context or change its given settings, and return the contexts.

    A relative store of files is relative to the working folder.

    Raises:
        UsageError: A new context has no store, a user name and a password don't come together, a property is a
            secret, or a URL of metrics is none.
    """
    contexts = read_contexts(path)
    known = {context.name for context in contexts.contexts}
    if name not in known and store_url is None:
        raise UsageError(f"a new context needs a store: {name}", hint="--store kafka://host:9092 for example")
    old = contexts.get(name) if name in known else _new(checked_context_name(name), path)
    _refuse_secrets(properties or {})
    context = replace(
        old,
        store_url=old.store_url if store_url is None else str(parse_store_url(store_url)),
        command_config=command_config or old.command_config,
        username=username or old.username,
        password=password or old.password,
        properties={**old.properties, **(properties or {})},
        control=control or old.control,
        prometheus=tuple(map(checked_metrics_url, prometheus)) or old.prometheus,
        protected=old.protected if protected is None else protected,
    )
    if (context.username is None) != (context.password is None):
        raise UsageError(
            "a user name and a password go together",
            hint="--username NAME with --password-file, --password-variable or --password-command",
        )
    changed = with_context(contexts, context)
    write_contexts(changed)
    return changed


def _new(name: str, path: Path) -> Context:
    return Context(name=name, store_url="", folder=path.parent)


def _refuse_secrets(properties: dict[str, str | Secret]) -> None:
    for name, value in properties.items():
        if isinstance(value, str) and is_secret_property(name):
            raise UsageError(
                f"{name} is a secret and is not written into a file of contexts",
                hint="the login has --password-file, --password-variable and --password-command; for the others put "
                f'"{name}" = {{ file = "..." }} into the file by hand',
            )

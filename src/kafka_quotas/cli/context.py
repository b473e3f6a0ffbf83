"""`kafka-quotas context`: named clusters.

A listing shows where a secret is kept, never the secret.
"""

import sys
from collections.abc import Iterator
from dataclasses import astuple
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice, store_options
from kafka_quotas.cli.options.journal import journal_setting
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.output.render import (
    TABLE_VIEW,
    Cell,
    Listing,
    Table,
    columns,
    plain_columns,
    print_listing,
    write,
)
from kafka_quotas.commands.context import remove_context, set_context, use_context
from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.contexts.context import Context
from kafka_quotas.stores.contexts.file import Contexts, contexts_path, read_contexts
from kafka_quotas.stores.contexts.secret import Secret, SecretPlace, secret_at
from kafka_quotas.stores.url import absolute_path


def contexts_listing(contexts: Contexts) -> Listing:
    """List the contexts, sorted by name."""
    return Listing(
        noun="contexts",
        items="contexts",
        data={
            "file": str(contexts.path),
            "contexts": [
                {"name": each.name, "store": each.store_url, "current": each.name == contexts.current}
                for each in contexts.contexts
            ],
        },
        table=Table(
            columns=columns("in use, name, store"),
            rows=[
                ("*" if each.name == contexts.current else "", each.name, each.store_url) for each in contexts.contexts
            ],
        ),
    )


def context_listing(context: Context) -> Listing:
    """List one context, setting by setting."""
    rows = [("store", context.store_url), ("command_config", context.command_config), *_login_rows(context)]
    shown = [(name, value) for name, value in rows if value is not None]
    return Listing(
        noun="context",
        items="settings",
        data={"name": context.name, "settings": [{"setting": name, "value": value} for name, value in shown]},
        table=Table(columns=columns("setting, value"), rows=shown),
    )


def settings_listing(choice: StoreChoice, journal: Setting, *, origin: bool) -> Listing:
    """List the settings in force, with `origin` also where each came from."""
    url = choice.url if choice.chosen else Setting(value=str(choice.address), origin=Origin.DEFAULT)
    settings = [
        ("context", choice.context_name),
        ("store", url),
        ("command_config", choice.command_config),
        *((name, _of_context(value, choice)) for name, value in _login_rows(choice.login)),
        ("journal", journal),
    ]
    titles = ("setting", "value", "origin", "from")[: 4 if origin else 2]
    rows: list[tuple[Cell, ...]] = [
        (name, setting.value, str(setting.origin), setting.source)[: len(titles)] for name, setting in settings
    ]
    return Listing(
        noun="settings",
        items="settings",
        data={"settings": [dict(zip(titles, row, strict=True)) for row in rows]},
        table=Table(
            columns=plain_columns(titles),
            rows=[
                tuple("not set" if index == 1 and not cell else cell for index, cell in enumerate(row)) for row in rows
            ],
        ),
    )


def _login_rows(context: Context | None) -> Iterator[tuple[str, str]]:
    if context is None:
        return
    if context.username is not None:
        yield "username", context.username
        yield "password", str(context.password)
    for name, value in context.properties.items():
        yield name, str(value)


def _of_context(value: str, choice: StoreChoice) -> Setting:
    return Setting(value=value, origin=Origin.CONTEXT, source=choice.context_name.value)


app = typer.Typer(add_completion=False, no_args_is_help=True)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a context.", autocompletion=complete_contexts)]
MaybeName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="The name of a context.", autocompletion=complete_contexts, show_default=False
    ),
]
ShowOrigin = Annotated[
    bool, typer.Option("--origin", help="Say of each setting where it came from: option, variable, context or default.")
]
NoContext = Annotated[bool, typer.Option("--none", help="Use no context any more.")]
Use = Annotated[bool, typer.Option("--use", help="Use this context from now on.")]


@option_group
class LoginOptions:
    """The options of a context about logging in."""

    username: str | None = option("--username NAME", help="Whom to log in as (SASL).")
    password_file: str | None = option("--password-file FILE", help="The file that holds the password.")
    password_variable: str | None = option("--password-variable VARIABLE", help="The variable that holds the password.")
    password_command: str | None = option(
        "--password-command COMMAND", help="The command that prints the password, for example 'pass show kafka'."
    )
    property_: list[str] | None = option(
        "--property KEY=VALUE", help="A client property by Kafka's own name. May be repeated."
    )

    def password(self) -> Secret | None:
        """Return where the password is kept.

        A relative file is relative to the working folder.

        Raises:
            UsageError: More than one place is named.
        """
        places = {
            SecretPlace.FILE: self.password_file,
            SecretPlace.VARIABLE: self.password_variable,
            SecretPlace.COMMAND: self.password_command,
        }
        named = {place: where for place, where in places.items() if where is not None}
        if len(named) > 1:
            options = " and ".join(f"--password-{place}" for place in named)
            raise UsageError(f"{options} exclude each other", hint="the password is in one place")
        for place, where in named.items():
            return secret_at(place, str(absolute_path(where)) if place is SecretPlace.FILE and where else where)
        return None


@app.callback()
def _context() -> None:
    """Name clusters, and choose which one commands talk to.

    An option beats a variable, a variable beats the context in use, and that beats the local store. Passwords stay in
    files, variables or a password manager: a context only says where.
    """


@app.command("list")
def list_contexts(*, output: ListingView = TABLE_VIEW) -> None:
    """List the contexts and mark the one in use."""
    contexts = read_contexts(contexts_path())
    print_listing(contexts_listing(contexts), output)
    if not contexts.contexts:
        write("note: there are no contexts\nhint: kafka-quotas context set NAME --store URL makes one", sys.stderr)


@app.command()
def show(
    *, name: MaybeName = None, origin: ShowOrigin = False, store: StoreOptions, output: ListingView = TABLE_VIEW
) -> None:
    """Show a context, or without a name the settings that count now.

    Secrets are never shown, only where they come from.
    """
    if name is not None:
        if origin or any(astuple(store)):
            raise UsageError(
                "a context and --origin or a store exclude each other",
                hint="leave the name out: what counts now is shown",
            )
        print_listing(context_listing(read_contexts(contexts_path()).get(name)), output)
        return
    print_listing(settings_listing(store.choose(), journal_setting(), origin=origin), output)


@app.command()
def use(*, name: MaybeName = None, none: NoContext = False) -> None:
    """Use a context from now on, where no option or variable names another."""
    if none == (name is not None):
        raise UsageError("name the context to use, or give --none", hint="kafka-quotas context list shows them")
    contexts = use_context(contexts_path(), name)
    write("No context is in use." if name is None else f"Using {name}: {contexts.get(name).store_url}.", sys.stdout)


@app.command("set")
def set_(
    *, name: Name, store: Annotated[StoreOptions, Without("context")], login: LoginOptions, use_it: Use = False
) -> None:
    """Make a context, or change what is given of one.

    Comments in the file stay, but for those within the context itself.
    """
    named = store_options(store=store.store, bootstrap_server=store.bootstrap_server, zookeeper=store.zookeeper)
    path = contexts_path()
    set_context(
        path,
        name,
        store_url=next(iter(named.values()), None),
        command_config=None if store.command_config is None else str(absolute_path(str(store.command_config))),
        username=login.username,
        password=login.password(),
        properties=dict(_pair(text) for text in login.property_ or ()),
    )
    if use_it:
        use_context(path, name)
    write(f"Context {name} is in {path}.", sys.stdout)


@app.command()
def remove(*, name: Name) -> None:
    """Remove a context. Its store is not touched."""
    path = contexts_path()
    if remove_context(path, name):
        write(f"note: {name} was in use; no context is now", sys.stderr)
    write(f"Context {name} is no longer in {path}.", sys.stdout)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"not KEY=VALUE: {text!r}", hint="for example --property sasl.mechanism=SCRAM-SHA-512")
    return name.strip(), value.strip()

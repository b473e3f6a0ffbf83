"""What is shown of contexts. Secrets are not: a reference says where one is, never what."""

from collections.abc import Iterator

from kafka_quotas.cli.render import Cell, Column, Listing, Table
from kafka_quotas.cli.store_choice import Origin, Setting, StoreChoice
from kafka_quotas.stores.context import Context
from kafka_quotas.stores.context_file import Contexts
from kafka_quotas.stores.store_url import default_local_path


def contexts_listing(contexts: Contexts) -> Listing:
    """The contexts, sorted by name."""
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
            columns=(Column(title="in use"), Column(title="name"), Column(title="store")),
            rows=[
                ("*" if each.name == contexts.current else "", each.name, each.store_url) for each in contexts.contexts
            ],
        ),
    )


def context_listing(context: Context) -> Listing:
    """One context, setting by setting."""
    rows = [("store", context.store_url), ("command_config", context.command_config), *_login_rows(context)]
    shown = [(name, value) for name, value in rows if value is not None]
    return Listing(
        noun="context",
        items="settings",
        data={"name": context.name, "settings": [{"setting": name, "value": value} for name, value in shown]},
        table=Table(columns=(Column(title="setting"), Column(title="value")), rows=shown),
    )


def settings_listing(choice: StoreChoice, journal: Setting, *, origin: bool) -> Listing:
    """The settings that count now; with `origin` where each came from."""
    url = choice.url if choice.chosen else Setting(value=f"local:{default_local_path()}", origin=Origin.DEFAULT)
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
            columns=[Column(title=title) for title in titles],
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

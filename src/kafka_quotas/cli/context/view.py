"""The listings of `kafka-quotas context`, which show where a secret is kept, never the secret."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice
from kafka_quotas.cli.output.document import document_of, documents_of
from kafka_quotas.cli.output.render import Listing, Table, columns, plain_columns
from kafka_quotas.commands.context_reach import Reached
from kafka_quotas.core.described import StoreAddress
from kafka_quotas.core.model.value_format import format_duration_ms
from kafka_quotas.stores.contexts.context import Context
from kafka_quotas.stores.contexts.file import Contexts


class ContextRow(NamedTuple):
    """A context in the list of all."""

    name: str
    store: StoreAddress
    current: bool
    protected: bool


class ContextSetting(NamedTuple):
    """A setting of a context."""

    setting: str
    value: str


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting in force, and where it came from."""

    DOCUMENT: ClassVar = "setting own.value own.origin from=own.source"
    setting: str
    own: Setting


def contexts_listing(contexts: Contexts) -> Listing:
    """List the contexts, sorted by name."""
    rows = [
        ContextRow(each.name, each.store_url, each.name == contexts.current, each.protected)
        for each in contexts.contexts
    ]
    return Listing(
        noun="contexts",
        items="contexts",
        data={**document_of(contexts), "contexts": documents_of(rows)},
        table=Table(
            columns=columns("in use, name, store, protected"),
            rows=[("*" * each.current, each.name, each.store, "yes" * each.protected) for each in rows],
        ),
    )


def context_listing(context: Context) -> Listing:
    """List one context, setting by setting."""
    rows = [
        ("store", context.store_url),
        ("command_config", context.command_config),
        ("control", context.control),
        ("prometheus", ", ".join(context.prometheus) or None),
        ("protected", "yes" if context.protected else None),
        *_login_rows(context),
    ]
    shown = [ContextSetting(name, value) for name, value in rows if value is not None]
    return Listing(
        noun="context",
        items="settings",
        data={"name": context.name, "settings": documents_of(shown)},
        table=Table(columns=columns("setting, value"), rows=shown),
    )


def settings_listing(choice: StoreChoice, journal: Setting, *, origin: bool) -> Listing:
    """List the settings in force.

    With `origin` people see where each came from; machines always do.
    """
    url = choice.url if choice.chosen else Setting(value=str(choice.address), origin=Origin.DEFAULT)
    settings = [
        ("context", choice.context_name),
        ("store", url),
        ("command_config", choice.command_config),
        *((name, _of_context(value, choice)) for name, value in _usage_rows(choice.context)),
        *((name, _of_context(value, choice)) for name, value in _login_rows(choice.login)),
        ("journal", journal),
    ]
    shown = ("setting", "value", "origin", "from")[: 4 if origin else 2]
    return Listing(
        noun="settings",
        items="settings",
        data={"settings": [document_of(SettingInForce(*each)) for each in settings]},
        table=Table(
            columns=plain_columns(shown),
            rows=[(name, own.value or "not set", str(own.origin), own.source)[: len(shown)] for name, own in settings],
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


def _usage_rows(context: Context | None) -> Iterator[tuple[str, str]]:
    if context is not None and context.control_path is not None:
        yield "control", str(context.control_path)
    if context is not None and context.prometheus:
        yield "prometheus", ", ".join(context.prometheus)
    if context is not None and context.protected:
        yield "protected", "yes"


def _of_context(value: str, choice: StoreChoice) -> Setting:
    return Setting(value=value, origin=Origin.CONTEXT, source=choice.context_name.value)


def reached_listing(reached: Sequence[Reached]) -> Listing:
    """List what the addresses of contexts answered, and how long each took."""
    return Listing(
        noun="context-test",
        items="addresses",
        data={"addresses": documents_of(reached)},
        table=Table(
            columns=columns("context!, part!, answers, in>, address, what"),
            rows=[
                (
                    each.context,
                    each.part,
                    "yes" if each.reached else "no",
                    format_duration_ms(each.whole_ms),
                    each.address,
                    each.text,
                )
                for each in reached
            ],
        ),
    )

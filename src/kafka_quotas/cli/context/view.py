"""The listings of `kafka-quotas context`, which show where a secret is kept, never the secret."""

from collections.abc import Iterator, Sequence

from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice
from kafka_quotas.cli.output.render import Cell, Listing, Table, columns, plain_columns
from kafka_quotas.commands.context_reach import Reached
from kafka_quotas.core.model.value_format import format_duration_ms
from kafka_quotas.stores.contexts.context import Context
from kafka_quotas.stores.contexts.file import Contexts


def contexts_listing(contexts: Contexts) -> Listing:
    """List the contexts, sorted by name."""
    return Listing(
        noun="contexts",
        items="contexts",
        data={
            "file": str(contexts.path),
            "contexts": [
                {
                    "name": each.name,
                    "store": each.store_url,
                    "current": each.name == contexts.current,
                    "protected": each.protected,
                }
                for each in contexts.contexts
            ],
        },
        table=Table(
            columns=columns("in use, name, store, protected"),
            rows=[
                ("*" * (each.name == contexts.current), each.name, each.store_url, "yes" * each.protected)
                for each in contexts.contexts
            ],
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
    shown = [(name, value) for name, value in rows if value is not None]
    return Listing(
        noun="context",
        items="settings",
        data={"name": context.name, "settings": [{"setting": name, "value": value} for name, value in shown]},
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
    titles = ("setting", "value", "origin", "from")
    shown = titles if origin else titles[:2]
    rows: list[tuple[Cell, ...]] = [
        (name, setting.value, str(setting.origin), setting.source) for name, setting in settings
    ]
    return Listing(
        noun="settings",
        items="settings",
        data={"settings": [dict(zip(titles, row, strict=True)) for row in rows]},
        table=Table(
            columns=plain_columns(shown),
            rows=[(name, value or "not set", *rest)[: len(shown)] for name, value, *rest in rows],
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
        data={
            "addresses": [
                {
                    "context": each.context,
                    "part": each.part,
                    "address": each.address,
                    "reached": each.error is None,
                    "answer": _answer(each),
                    "took_ms": round(each.took_ms),
                }
                for each in reached
            ]
        },
        table=Table(
            columns=columns("context!, part!, answers, in>, address, what"),
            rows=[
                (
                    each.context,
                    each.part,
                    "yes" if each.error is None else "no",
                    format_duration_ms(round(each.took_ms)),
                    each.address,
                    _answer(each),
                )
                for each in reached
            ],
        ),
    )


def _answer(each: Reached) -> str | None:
    return each.answer if each.error is None else each.error.message

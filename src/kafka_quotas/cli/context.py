"""`kafka-quotas context`: name clusters, switch between them, and try whether they answer."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import typer

from kafka_quotas import stores
from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.framework.commands import PagedGroup
from kafka_quotas.cli.framework.option_groups import Without, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice, choose_store, store_options
from kafka_quotas.cli.options.stores import OutputForm, StoreOptions, journal_setting
from kafka_quotas.cli.output.listing import Listing, Output, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.core.described import StoreAddress, document_of, documents_of
from kafka_quotas.core.errors import KafkaQuotasError, UsageError, VerdictError
from kafka_quotas.core.model.value_format import format_count, format_duration_ms


class ContextRow(NamedTuple):
    """A context in the list of all."""

    name: str
    store: StoreAddress
    current: bool
    protected: bool


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting in force, and where it came from."""

    DOCUMENT: ClassVar = "setting own.value own.origin from=own.source"
    setting: str
    own: Setting


@dataclass(frozen=True, slots=True)
class Reached:
    """What one address of a context answered, and how long that took."""

    DOCUMENT: ClassVar = "context part address reached answer took_ms"
    context: str
    part: str
    """`store`, `control` or `prometheus`."""
    address: str
    reached: bool
    answer: str | None
    """What was read there, or else why nothing was."""
    took_ms: int
    hint: str | None = None


def _settings_listing(choice: StoreChoice, journal: Setting) -> Listing:
    url = choice.url if choice.chosen else Setting(value=str(choice.address), origin=Origin.DEFAULT)
    of_context = (*_usage_rows(choice.context), *_login_rows(choice.login))
    settings = [
        ("context", choice.context_name),
        ("store", url),
        ("command_config", choice.command_config),
        *(
            (name, Setting(value=value, origin=Origin.CONTEXT, source=choice.context_name.value))
            for name, value in of_context
        ),
        ("journal", journal),
    ]
    rows = [(name, own.value or "not set", str(own.origin), own.source) for name, own in settings]
    return listed(
        "settings",
        {"settings": [document_of(SettingInForce(*each)) for each in settings]},
        "setting, value, origin, from",
        rows,
    )


def _login_rows(context: stores.Context | None) -> Iterator[tuple[str, str]]:
    if context is None:
        return
    if context.username is not None:
        yield "username", context.username
        yield "password", str(context.password)
    for name, value in context.properties.items():
        yield name, str(value)


def _usage_rows(context: stores.Context | None) -> Iterator[tuple[str, str]]:
    if context is not None and context.control_path is not None:
        yield "control", str(context.control_path)
    if context is not None and context.prometheus:
        yield "prometheus", ", ".join(context.prometheus)
    if context is not None and context.protected:
        yield "protected", "yes"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a context.", autocompletion=complete_contexts)]
MaybeName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The name of a context.", autocompletion=complete_contexts, show_default=False),
]
AllContexts = Annotated[bool, option_info("--all", help="Test every context.")]
NoContext = Annotated[bool, option_info("--none", help="Stop using a context.")]
_Named = Annotated[StoreOptions, Without("bootstrap_server", "zookeeper", "command_config")]
Use = Annotated[bool, option_info("--use", help="Use this context from now on.")]
Protected = Annotated[
    bool | None,
    option_info(
        "--protected/--no-protected",
        help="Ask before a change of its store, however the store is named; --yes agrees beforehand.",
        show_default=False,
    ),
]


@option_group("Login")
class _LoginOptions:
    username: str | None = option("--username NAME", help="The user to log in as (SASL).")
    password_file: str | None = option("--password-file FILE", help="The file that holds the password.")
    password_command: str | None = option(
        "--password-command COMMAND",
        help="The command that prints the password, for example 'pass show kafka' or 'printenv PASSWORD'.",
    )
    property_: list[str] | None = option(
        "--property KEY=VALUE", help="A client property by Kafka's own name. May be repeated."
    )

    def added_to(self, context: stores.Context) -> stores.Context:
        """Return the context with these settings, where a password file is relative to the working folder."""
        named = {
            stores.SecretPlace.FILE: self.password_file and str(stores.absolute_path(self.password_file)),
            stores.SecretPlace.COMMAND: self.password_command,
        }
        places = [place for place, where in named.items() if where is not None]
        if len(places) > 1:
            options = " and ".join(f"--password-{place}" for place in places)
            raise UsageError(f"{options} exclude each other", hint="the password is in one place")
        password = stores.secret_at(places[0], str(named[places[0]])) if places else context.password
        properties = {**context.properties, **dict(map(_property, self.property_ or ()))}
        username = self.username or context.username
        if (username is None) != (password is None):
            raise UsageError(
                "a user name and a password go together",
                hint="--username NAME with --password-file or --password-command",
            )
        return replace(context.logging_in(username, password), properties=properties)


@option_group("Daemon and metrics")
class _MeasuringOptions:
    control: str | None = option("--control PATH", help="The control socket of the daemon in front of the cluster.")
    prometheus: list[str] | None = option(
        "--prometheus URL",
        help="The brokers' metrics (http://BROKER:PORT/metrics; may be repeated) or a Prometheus server with them.",
    )


def list_contexts(*, output: OutputForm = Output.TABLE) -> None:
    """List the contexts and mark the one in use."""
    contexts = stores.read_contexts(stores.contexts_path())
    rows = [
        ContextRow(each.name, each.store_url, each.name == contexts.current, each.protected)
        for each in contexts.contexts
    ]
    shown = [("*" * each.current, each.name, each.store, "yes" * each.protected) for each in rows]
    data = {**document_of(contexts), "contexts": documents_of(rows)}
    print_listing(listed("contexts", data, "in use, name, store, protected", shown), output)
    if not contexts.contexts:
        write("note: there are no contexts\nhint: kafka-quotas context set NAME --store URL makes one", sys.stderr)


def show(*, name: MaybeName = None, store: _Named, output: OutputForm = Output.TABLE) -> None:
    """Show the settings in force, or those of a context, and where each comes from.

    Secrets are never shown, only where they come from.
    """
    if name is not None and any(astuple(store)):
        raise UsageError(
            "a context and a store exclude each other", hint="leave the name out: the settings in force are shown"
        )
    choice = store.choose() if name is None else choose_store(context=name)
    print_listing(_settings_listing(choice, journal_setting()), output)


def use(*, name: MaybeName = None, none: NoContext = False) -> None:
    """Use a context from now on, unless an option or variable names another."""
    if none == (name is not None):
        raise UsageError("name the context to use, or give --none", hint="kafka-quotas context list shows them")
    contexts = stores.with_current(stores.read_contexts(stores.contexts_path()), name)
    stores.write_contexts(contexts)
    write("No context is in use." if name is None else f"Using {name}: {contexts.get(name).store_url}.", sys.stdout)


def set_(
    *,
    name: Name,
    store: Annotated[StoreOptions, Without("context")],
    login: _LoginOptions,
    measuring: _MeasuringOptions,
    protected: Protected = None,
    use_it: Use = False,
) -> None:
    """Create a context, or update the given settings of an existing one.

    Comments in the file are kept, except those within the context itself.
    """
    path = stores.contexts_path()
    contexts = stores.read_contexts(path)
    named = store_options(store=store.store, bootstrap_server=store.bootstrap_server, zookeeper=store.zookeeper)
    url = next(iter(named.values()), None)
    old = next((each for each in contexts.contexts if each.name == name), None)
    if old is None and url is None:
        raise UsageError(f"a new context needs a store: {name}", hint="--store kafka://host:9092 for example")
    store_url = None if url is None else str(stores.parse_store_url(url))
    if old is None:
        old = stores.Context(name=stores.checked_context_name(name), folder=path.parent, store_url=store_url or "")
    context = replace(
        login.added_to(old),
        store_url=store_url or old.store_url,
        command_config=_absolute(store.command_config) or old.command_config,
        control=_absolute(measuring.control) or old.control,
        prometheus=tuple(map(stores.checked_metrics_url, measuring.prometheus or ())) or old.prometheus,
        protected=old.protected if protected is None else protected,
    )
    contexts = stores.with_context(contexts, context)
    contexts = stores.with_current(contexts, name) if use_it else contexts
    stores.write_contexts(contexts)
    write(f"Context {name} is in {path}.", sys.stdout)
    following = (
        f"context test {name} tries it"
        if contexts.current == name
        else f"context use {name} makes it every command's default"
    )
    write(f"hint: kafka-quotas {following}", sys.stderr)


def remove(*, name: Name) -> None:
    """Remove a context. Its store is not touched."""
    path = stores.contexts_path()
    contexts = stores.read_contexts(path)
    stores.write_contexts(stores.without_context(contexts, name))
    if contexts.current == name:
        write(f"note: {name} was in use; no context is now", sys.stderr)
    write(f"Context {name} is no longer in {path}.", sys.stdout)


def reach(*, name: MaybeName = None, every: AllContexts = False, output: OutputForm = Output.TABLE) -> None:
    """Test whether everything that a context names answers: its store, its daemon, its metrics.

    Without a name it is the context in use. The whole store is read, as `describe` does, so that missing rights
    show too. Nothing is written. The exit code is 1 if anything does not answer.
    """
    if every and name is not None:
        raise UsageError("a context and --all exclude each other")
    names = [each.name for each in stores.read_contexts(stores.contexts_path()).contexts] if every else [name]
    reached = [result for each in names for result in _reach(each)]
    rows = [
        (e.context, e.part, "yes" if e.reached else "no", format_duration_ms(e.took_ms), e.address, e.answer)
        for e in reached
    ]
    data, marked = {"addresses": documents_of(reached)}, "context!, part!, answers, in>, address, what"
    print_listing(listed("context-test", data, marked, rows), output)
    failed = [each for each in reached if not each.reached]
    if failed:
        hint = next((each.hint for each in failed if each.hint), None)
        raise VerdictError(f"{len(failed)} of {len(reached)} did not answer", hint=hint)


def _reach(name: str | None) -> Iterator[Reached]:
    """Read the store, the status of the daemon and every address of metrics, and yield what each gave."""
    choice = choose_store(store=None, context=name)
    context = choice.context
    if context is None:
        raise UsageError("no context is in use", hint="name one, or give --all; kafka-quotas context list shows them")
    parts: list[tuple[str, str, Callable[[], str]]] = [("store", str(choice.address), partial(_stored, choice))]
    if context.control_path is not None:
        parts.append(("control", str(context.control_path), partial(_status, context.control_path)))
    parts += [("prometheus", url, partial(_metrics, url)) for url in context.prometheus]
    for part, where, read in parts:
        began_s, reached, hint = time.monotonic(), True, None
        try:
            answer = read()
        except KafkaQuotasError as error:
            reached, answer, hint = False, error.message, error.hint
        took_ms = round((time.monotonic() - began_s) * 1000)
        yield Reached(context.name, part, where, reached, answer, took_ms, hint)


def _stored(choice: StoreChoice) -> str:
    with closing(choice.open_existing()) as store:
        return f"{format_count(len(stores.content_of(store)), 'entity')} with quotas"


def _status(control: Path) -> str:
    from kafka_quotas.enforcement import ask_status  # noqa: PLC0415 - few contexts have a daemon

    status = ask_status(control)
    return f"daemon {status.pid}, {format_count(len(status.buckets), 'bucket')}"


def _metrics(url: str) -> str:
    from kafka_quotas.commands.insight.usage import UsageSource, read_usage  # noqa: PLC0415 - as above

    return format_count(len(read_usage(UsageSource(metrics_urls=(url,))).usages), "bucket")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise UsageError(f"not KEY=VALUE: {text!r}", hint="for example --property sasl.mechanism=SCRAM-SHA-512")
    if stores.is_secret_property(name):
        raise UsageError(
            f"{name} is a secret and is not written into a file of contexts",
            hint="the login has --password-file and --password-command; for the others put "
            f'"{name}" = {{ file = "..." }} into the file by hand',
        )
    return name, value


def _absolute(path: str | Path | None) -> str | None:
    return None if path is None else str(stores.absolute_path(str(path)))


app = PagedGroup(
    """Name clusters, and choose which one commands talk to.

    An option beats a variable, a variable beats the context in use, and that beats the local store. Passwords stay in
    files, variables or a password manager: a context only says where.
    """,
    {"list": list_contexts, "show": show, "use": use, "set": set_, "remove": remove, "test": reach},
)

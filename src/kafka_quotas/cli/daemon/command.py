"""`kafka-quotas daemon`: run the enforcing proxy, look into one that runs, ask it, and calibrate it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas import enforcement
from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.daemon.run import OVERRIDES, check, run
from kafka_quotas.cli.framework.commands import PagedGroup, as_command, variable
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.options.stores import CommandConfig, ListingView, OutputForm
from kafka_quotas.cli.options.windows import ClientWindow
from kafka_quotas.cli.output.listing import TABLE_VIEW, Listing, Output, columns, listed
from kafka_quotas.cli.output.render import client_text, last_minute_text, print_listing
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, REQUEST_RATE, ResourceQuota, Unit
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.model.value_format import format_byte_rate, format_count, parse_bytes
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.core.resolution.quota_resolver import bucket_of_tags
from kafka_quotas.wire import API_TABLE

_BYTES = (QuotaType.PRODUCE, QuotaType.FETCH, ResourceQuota.TOPIC)


@option_group("Daemon")
class _AskedDaemon:
    control: Path | None = option(
        "--control PATH",
        help="The control socket of the daemon. Default: the one of the context, else that of your only daemon.",
        envvar=variable("DAEMON", "--control"),
    )
    context: str | None = option(
        "--context NAME",
        help="The context whose daemon is asked. Without it the variable KAFKA_QUOTAS_CONTEXT counts, else the context "
        "in use.",
        autocompletion=complete_contexts,
    )

    def path(self) -> Path | None:
        """Return the path of the control socket, None for the only running daemon."""
        if self.control is not None:
            if self.context is not None:
                raise UsageError("--control and --context exclude each other", hint="each names the daemon")
            return self.control
        context = choose_store(store=None, context=self.context).context
        if self.context is not None and context is not None and context.control is None:
            raise UsageError(
                f"context {context.name} has no control socket",
                hint=f"kafka-quotas context set {context.name} --control PATH",
            )
        return None if context is None else context.control_path


@option_group(OPTIONS_HEADING)
class _UnmuteOptions:
    client: str | None = option("--client ID", help="The client-id to unmute. Default: any of the user.")
    user: str | None = option("--user NAME", help="The user whose clients to unmute. Default: any.")


def unmute(*, asked: _UnmuteOptions, daemon: _AskedDaemon, output: OutputForm = Output.TABLE) -> None:
    """End the throttle times of a client: its connections are read again at once.

    What was measured stays, so a client that is still over its limit waits again after its next request: raise or
    remove the limit first. Clients that honour the throttle time of a response wait to its end.
    """
    if not asked.client and not asked.user:
        raise UsageError("whose throttle time is to end?", hint="name a --client, a --user, or both")
    clients = QuotaClient(user=asked.user, client_id=asked.client)
    print_listing(unmuted_listing(enforcement.ask_unmute(daemon.path(), clients)), output)


def status(*, daemon: _AskedDaemon, output: ListingView = TABLE_VIEW) -> None:
    """Show who is throttled, by which quota and for how long, and the daemon's health."""
    print_listing(status_listing(enforcement.ask_status(daemon.path())), output)


def reload(*, daemon: _AskedDaemon, output: OutputForm = Output.TABLE) -> None:
    """Have the daemon read its files and its store again, keeping connections and measurements.

    All files are checked before any is used. Where one can't be used the daemon keeps what it had; the exit code is 1.
    """
    print_listing(reload_listing(enforcement.ask_reload(daemon.path())), output)


OpArgument = Annotated[
    enforcement.Operation,
    typer.Argument(metavar="record|check|unrecord", help="Charge an amount, ask about it, or give it back."),
]


@option_group("Amount")
class _DecideOptions:
    quota_type: str = option(
        "--type TYPE",
        default=QuotaType.PRODUCE.value,
        help=f"What the amount is of: {', '.join(enforcement.ANY_QUOTA_TYPES)}.",
        autocompletion=lambda: list(enforcement.ANY_QUOTA_TYPES),
    )
    amount: str = option(
        "--amount AMOUNT",
        default="0",
        help="Bytes (with units), ms of thread time, partitions, requests or connections, by --type.",
    )
    user: str = option("--user NAME", default=enforcement.ANONYMOUS, help="The user.")
    client: str = option("--client ID", default="", help="The client-id.")
    ip: str = option("--ip IP", default="", help="The address of the client, for --type connection.")
    topic: str = option("--topic NAME", default="", help="The topic, for --type topic.")
    broker: int | None = option(
        "--broker ID", help="The broker whose buckets are asked. Default: the broker behind the bootstrap listener."
    )


def decide(op: OpArgument, *, asked: _DecideOptions, daemon: _AskedDaemon, output: OutputForm = Output.TABLE) -> None:
    """Ask a running daemon how long a client has to wait, and by which quota.

    The answer comes from the buckets that the daemon charges its own clients to.
    """
    quota_type = enforcement.ANY_QUOTA_TYPES.get(asked.quota_type)
    if quota_type is None:
        raise UsageError(f"not a type: {asked.quota_type!r}", hint=f"one of {', '.join(enforcement.ANY_QUOTA_TYPES)}")
    amount = _amount(asked.amount, quota_type)
    ask = enforcement.DecisionRequest(
        op, quota_type, amount, asked.user, asked.client, asked.ip, asked.topic, asked.broker
    )
    with enforcement.DecisionClient(daemon.path() or enforcement.find_control_path()) as client:
        decision = client.ask(ask)
    print_listing(decision_listing(decision), output)


def _amount(text: str, quota_type: enforcement.AnyQuotaType) -> float:
    if quota_type in _BYTES:
        return float(parse_bytes(text))
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"not a number: {text!r}") from error


@option_group(OPTIONS_HEADING)
class _CalibrateOptions:
    upstream: str = required("--upstream HOST:PORT", help="A broker of the cluster to enforce in front of.")
    cost_model: Path = required("--cost-model FILE", help="Where to write the cost model (JSON).")
    command_config: CommandConfig = None
    rounds: int = option(
        "--rounds N",
        default=enforcement.ROUNDS,
        min=1,
        help="How often each request is measured; the lowest figure counts.",
    )
    warm_up: float = option(
        "--warm-up SECONDS",
        default=enforcement.WARM_UP_S,
        min=0.0,
        help="How long each request is repeated before it is measured: a broker's first ones are slow.",
    )


def calibrate(*, asked: _CalibrateOptions, windows: ClientWindow, output: OutputForm = Output.TABLE) -> None:
    """Measure in about a minute how much thread time requests cost the upstream.

    The broker's own throttle times are the measure: client-ids made for this get a small request_percentage, and
    send requests until they are throttled. A scratch topic and these quotas are created, and removed afterwards.
    Needs Kafka 2.6 or later, and the right to alter quotas and to create a topic. On a broker that has other work
    the figures are too high.
    """
    from kafka_quotas.commands.calibrate import calibrate as run  # noqa: PLC0415 - loads the Kafka store

    def report(progress: enforcement.MeasuredProbe) -> None:
        sizes = f"{progress.request_bytes} bytes asked, {progress.response_bytes} answered"
        sys.stderr.write(f"{progress.name}: {progress.nanos / 1000:.0f} us ({sizes})\n")

    upstream, config = asked.upstream, asked.command_config
    model = run(
        upstream,
        choose_store(store=None, bootstrap_server=upstream, command_config=config).settings(),
        window=windows.settings(servers=upstream, command_config=config).client,
        target=asked.cost_model,
        on_progress=report,
        rounds=asked.rounds,
        warm_up_s=asked.warm_up,
    )
    print_listing(_cost_listing(model), output)


def _cost_listing(model: CostModel) -> Listing:
    rows = [_cost_row(API_TABLE[key].name, cost) for key, cost in sorted(model.apis.items())]
    marked = "api, us per request (estimated)>, ns per request byte>, ns per response byte>"
    costs = [*rows, _cost_row("(others)", model.other)]
    return listed("cost-model", enforcement.cost_model_to_json(model), marked, costs)


def _cost_row(name: str, cost: ApiCost) -> tuple[str, ...]:
    per_byte = (cost.request_byte_nanos, cost.response_byte_nanos)
    return (name, f"{cost.request_nanos / 1000:.1f}", *(f"{nanos:.3g}" for nanos in per_byte))


_STATUS_COLUMNS = columns(
    "quota, entity, user, client-id, broker, limit>, observed>, connections>, throttle>, remaining>"
)

_FEW = 10


def status_listing(status: enforcement.DaemonStatus) -> Listing:
    """List the throttled clients as a table under a summary, and everything as JSON."""
    rows = []
    for row in status.throttled:
        who = (row.quota, row.entity, row.user, row.client_id, row.broker)
        observed = _rate(row.quota, row.observed) + (" (estimated)" if row.estimated else "")
        times = (f"{row.throttle_ms} ms", f"{row.remaining_ms} ms")
        rows.append((*who, _rate(row.quota, row.limit), observed, row.connections, *times))
    return listed("daemon-status", status, _STATUS_COLUMNS, rows, caption=_summary(status))


def _rate(quota: str, value: float) -> str:
    unit = next((key.unit for key in (*QUOTA_KEYS.values(), REQUEST_RATE) if key.name == quota), None)
    if unit is None or unit is Unit.BYTES_PER_SECOND:
        return format_byte_rate(value)
    return f"{value:.4g} {unit.value}"


def reload_listing(result: enforcement.Reloaded) -> Listing:
    """List the result of a reload as one row."""
    row = (result.store, result.store_trouble or "", result.changed, result.limits)
    read = "no; its last content stays in force" if result.store_trouble else "yes"
    caption = f"files read: {', '.join(result.files) or 'none'}\nstore read: {read}"
    return listed("daemon-reload", result, "store, trouble, changed>, limits>", [row], caption=caption)


def _last_minute(status: enforcement.DaemonStatus) -> list[str]:
    held = sorted(
        (row for row in status.buckets if row.last_minute_times), key=lambda row: row.last_minute_held_ms, reverse=True
    )
    if not held:
        return ["throttled in the last minute: nobody"]
    more = [f"  and {format_count(len(held) - _FEW, 'more bucket')}"] if len(held) > _FEW else []
    lines = ["throttled in the last minute:"]
    for row in held[:_FEW]:
        recent = RecentThrottling(
            times=row.last_minute_times, total_ms=row.last_minute_total_ms, held_ms=row.last_minute_held_ms
        )
        whom = client_text(*bucket_of_tags(row.user, row.client_id))
        broker = "all brokers together" if row.broker == enforcement.CLUSTER else f"broker {row.broker}"
        lines.append(f"  {whom} at {broker} by {row.quota}: {last_minute_text(recent)} of the minute")
    return lines + more


def _summary(status: enforcement.DaemonStatus) -> str:
    lines = [f"{label}: {text}" for label, text in enforcement.status_facts(status)]
    lines += _last_minute(status)
    lines.append("throttled now:" if status.throttled else "throttled now: nobody")
    return "\n".join(lines)


def unmuted_listing(result: enforcement.Unmuted) -> Listing:
    """List the clients that the daemon released, one row each."""
    rows = [
        (row.user, row.client_id, row.broker, row.quota, row.connections, f"{row.remaining_ms} ms")
        for row in result.unmuted
    ]
    caption = "let go:" if rows else "nobody of that name is throttled"
    marked = "user, client-id, broker, quota, connections>, remaining>"
    return listed("daemon-unmute", result, marked, rows, caption=caption)


def decision_listing(decision: enforcement.Decision) -> Listing:
    """Return one decision as a table of one row, and as JSON."""
    limit = f"{decision.limit:g}" if decision.entity else "unlimited"
    delay = f"{decision.delay_ms} ms" + (" (shadow)" if decision.is_shadow else "")
    row = (delay, decision.quota, decision.entity, limit, f"{decision.observed:.6g}")
    data = enforcement.decision_to_json(decision)
    if data["quota"]:
        data["quota"]["entity"] = Entity.from_text(decision.entity).to_mapping()
    return listed("decision", data, "delay>, quota, entity, limit>, observed>", [row])


app = PagedGroup(
    """Enforce quotas in a proxy in front of brokers.

    Clients connect to the daemon instead of the brokers. It speaks the Kafka protocol, holds each client to the
    quotas in the store, broker by broker as Kafka does, and passes everything else on.
    """,
    {
        "run": run,
        "check": as_command(of_service="DAEMON", context_settings=OVERRIDES)(check),
        **{each.__name__: each for each in (unmute, status, reload, decide, calibrate)},
    },
)

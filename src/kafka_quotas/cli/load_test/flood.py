"""What `load-test requests`, `mutate` and `connect` share.

A flood is a scenario that is typed instead of written down: all that holds for `load-test run` holds for it. The quotas
of `--set-quota` last as long as its run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import confirm
from kafka_quotas.cli.load_test.options import (
    AbortOn,
    Brokers,
    ClientOptions,
    Expect,
    LengthOptions,
    Prometheus,
    ShardOptions,
    aborts,
    expectations,
)
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.run import note_step, run_and_keep, with_window
from kafka_quotas.cli.load_test.target_options import LoadWindowOptions, TargetOptions
from kafka_quotas.commands.load_test.request import RunRequest
from kafka_quotas.commands.load_test.typed_scenario import client_quotas
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaKey
from kafka_quotas.core.model.units import parse_quota_value
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import ClientKind
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioQuota, Security

FLOOD_S: Final = 30.0
"""How long a flood is measured where verdicts don't take longer."""


@option_group("Clients")
class FloodClientOptions(ClientOptions):
    """The options about the clients of a flood."""

    rate: list[str] | None = option(
        "--rate RATE",
        help="What a client offers: max (the default), 200req/s, 50conn/s or 2x-quota; once for all clients, or once "
        "for each in the order of --entity.",
    )
    client: ClientKind = ClientKind.RAW
    honor_throttle: str = "yes"


OneConnection = Annotated[FloodClientOptions, Without("connections")]


@option_group("Verdict")
class FloodVerdictOptions:
    """The options about what is judged in a flood."""

    brokers: Brokers = None
    expect: Expect = None
    abort_on: AbortOn = None
    shards: ShardOptions
    prometheus: Prometheus = None


def run_flood(
    scenario: Scenario,
    target: TargetOptions,
    length: LengthOptions,
    verdict: FloodVerdictOptions,
    output: ResultOutput,
    *,
    windows: LoadWindowOptions,
    change: str | None,
) -> int:
    """Run a flood and return its exit code.

    `change` says what the flood does to an existing cluster, None for nothing.

    Raises:
        UsageError: No target was named.
        typer.Abort: The user does not confirm the change.
    """
    if not target.cluster.is_named():
        raise UsageError("say what to put under load", hint="--bootstrap-server HOST:PORT, --broker-jars DIR")
    scenario = replace(scenario, warmup_s=length.warmup_s, security=_security(target))
    order = RunRequest(
        scenario=scenario,
        target=target.load_target(window=scenario.window, enforcers=verdict.brokers),
        journal_folder=target.change.journal_folder,
        scale=1.0,
        duration_s=length.duration_s,
        expectations=expectations(verdict.expect),
        aborts=aborts(verdict.abort_on),
        share=verdict.shards.share,
        start_at_ms=verdict.shards.start_at_ms,
        prometheus=tuple(verdict.prometheus or ()),
    )
    output.check()
    if change is not None and order.target.is_theirs and not target.change.yes:
        confirm(f"this {change} on {order.target.bootstrap}, and puts everything back at the end")
    return run_and_keep(with_window(order, windows), output, step=note_step)


def _security(target: TargetOptions) -> Security:
    # How clients authenticate, as far as checks need it.
    pairs = [pair.replace(" ", "").upper() for pair in target.credentials.properties or ()]
    if any(pair.startswith("SECURITY.PROTOCOL=SASL") for pair in pairs) or target.credentials.passwords is not None:
        return Security.SASL_PLAIN
    return Security.TLS if "SECURITY.PROTOCOL=SSL" in pairs else Security.PLAINTEXT


def quotas_to_set(names: Sequence[ClientName], key: QuotaKey, texts: list[str] | None) -> tuple[ScenarioQuota, ...]:
    """Return a quota of this key for each client, from one text for all or one for each.

    Without texts there are no quotas.
    """
    return client_quotas(names, key, [quota_to_set(key, text) for text in texts or ()])


def quota_to_set(key: QuotaKey, text: str) -> float:
    """Parse a value of `--set-quota`.

    Raises:
        UsageError: It is no value of the key, or is not above 0.
    """
    value = parse_quota_value(key, text)
    if value <= 0:
        raise UsageError(f"--set-quota must be above 0, not {text!r}")
    return value

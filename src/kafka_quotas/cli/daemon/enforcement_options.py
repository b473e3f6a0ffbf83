"""The options of `daemon run` about enforcement, and the rules that they make."""

from pathlib import Path

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.options.entity import checked_name
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.commands.windows import WindowSettings
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode, OnViolation, Scope
from kafka_quotas.enforcement.config.rules import (
    UNKNOWN_PRINCIPAL,
    AutoCreate,
    EnforcementRules,
    MutationMode,
    MutationRules,
    ThresholdError,
    ThrottleStyle,
    UnknownApi,
)


@option_group("Quota windows")
class UpstreamWindowOptions(WindowOptions):
    """The options about the quota windows, which the brokers of the cluster may be asked for."""

    upstream_windows: bool = option(
        "--upstream-windows",
        default=False,
        help="Read the window settings from the brokers of --upstream, with --command-config; the options above win.",
    )


@option_group("Who a client is")
class PrincipalOptions:
    """The options about who a client is."""

    principal: str | None = option(
        "--principal NAME", help="Count every client as this user. Default: the name from SASL, ANONYMOUS without."
    )
    unknown_principal: str = option(
        "--unknown-principal NAME",
        default=UNKNOWN_PRINCIPAL,
        help="The user of clients that authenticate in a way that can't be read (GSSAPI, delegation tokens).",
    )
    internal_principal: list[str] | None = option(
        "--internal-principal NAME",
        help="A user whose fetches as a replica are exempt; may be repeated. No other user's fetches are.",
    )


@option_group("Enforcement")
class EnforcementOptions:
    """The options about how quotas are enforced."""

    throttle_style: ThrottleStyle = option(
        "--throttle-style",
        default=ThrottleStyle.MUTE,
        help="mute: answer at once, then don't read (Kafka since 2.0). delay: hold the response back (before).",
    )
    max_throttle_ms: int | None = option(
        "--max-throttle-ms MS", min=1, help="The longest throttle time. Default: as long as Kafka makes them."
    )
    mode: Mode = option(
        "--mode",
        default=Mode.KAFKA,
        help="kafka: Kafka's window. smooth: a bucket of one second, without bursts and rests. "
        "shadow: count what would be done, and enforce nothing.",
    )
    scope: Scope = option(
        "--scope",
        default=Scope.BROKER,
        help="broker: each broker has the whole limit, as in Kafka. cluster: one limit over all brokers.",
    )
    fetch_over_quota: FetchOverQuota = option(
        "--fetch-over-quota",
        default=FetchOverQuota.DELIVER,
        help="deliver: hold a Fetch until its client may have data, and deliver it. kafka: answer with no data and "
        "count nothing, as a broker does.",
    )
    on_violation: OnViolation = option(
        "--on-violation",
        default=OnViolation.DELAY,
        help="What a client over its byte rates gets. error: its Produce and Fetch requests are refused with error 89. "
        "delay-then-error: as delay up to --max-throttle-ms, then error.",
    )
    mutations: MutationMode = option(
        "--mutations",
        default=MutationMode.AUTO,
        help="What happens to topics over controller_mutation_rate. strict: error 89. permissive: admitted, and the "
        "client is throttled. auto: strict in versions whose clients know the error, as a broker does.",
    )
    mutation_algorithm: MutationAlgorithm = option(
        "--mutation-algorithm",
        default=MutationAlgorithm.TOKEN_BUCKET,
        help="How controller_mutation_rate is measured: as Kafka does, or as one of the drafts of KIP-599.",
    )
    auto_create: AutoCreate = option(
        "--auto-create",
        default=AutoCreate.COUNT,
        help="What happens to topics that would be created because a Metadata request names them. count: charged to "
        "controller_mutation_rate. forbid: not created. pass: created without a charge.",
    )
    threshold_error: ThresholdError = option(
        "--threshold-error",
        default=ThresholdError.POLICY_VIOLATION,
        help="The error for data of topics over a threshold: 44, on which clients give up, or 89, which some retry.",
    )
    policy: Path | None = option(
        "--policy FILE",
        help="A TOML file with modes for some users and client-ids, request rates, exemptions and topic thresholds.",
    )
    cost_model: Path | None = option(
        "--cost-model FILE",
        help="The thread time of requests as measured by `daemon calibrate`; request_percentage is estimated by it.",
    )

    def rules(
        self, principals: PrincipalOptions, windows: WindowSettings, *, max_request_bytes: int, unknown_apis: UnknownApi
    ) -> EnforcementRules:
        """Return the rules that these options make.

        Raises:
            UsageError: A delay is followed by an error but has no upper bound, or a principal has no name.
        """
        if self.on_violation is OnViolation.DELAY_THEN_ERROR and self.max_throttle_ms is None:
            raise UsageError(
                "--on-violation delay-then-error needs --max-throttle-ms", hint="it says how long the delay may be"
            )
        return EnforcementRules(
            window=windows.client,
            throttle_style=self.throttle_style,
            max_throttle_ms=self.max_throttle_ms,
            mode=self.mode,
            scope=self.scope,
            fetch_over_quota=self.fetch_over_quota,
            on_violation=self.on_violation,
            mutation_window=windows.controller,
            mutations=MutationRules(
                mode=self.mutations, algorithm=self.mutation_algorithm, auto_create=self.auto_create
            ),
            threshold_error=self.threshold_error,
            max_request_bytes=max_request_bytes,
            principal=None if principals.principal is None else checked_name("--principal", principals.principal),
            unknown_principal=checked_name("--unknown-principal", principals.unknown_principal),
            unknown_apis=unknown_apis,
            internal_principals=frozenset(principals.internal_principal or ()),
        )

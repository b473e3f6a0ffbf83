"""`kafka-quotas daemon run`: every option of the enforcing proxy."""

import sys

from kafka_quotas.cli.daemon.enforcement_options import (
    AutoCreateOption,
    CostModelOption,
    FetchOverQuotaOption,
    LogFormatOption,
    MaxBucketMemory,
    MetricsClient,
    MetricsTop,
    MetricsUser,
    ModeOption,
    MutationAlgorithmOption,
    MutationsOption,
    OnViolationOption,
    PolicyFileOption,
    ScopeOption,
    ThresholdErrorOption,
    check_on_violation,
)
from kafka_quotas.cli.daemon.options import (
    AdvertisedHost,
    BrokerAddresses,
    Cluster,
    ConnectionRate,
    ConnectTimeout,
    Control,
    ControlMode,
    ControlUser,
    DrainTimeout,
    EventLog,
    EventLogConfig,
    EventLogKeep,
    EventLogRotate,
    InternalPrincipal,
    Listen,
    ListenerConfig,
    MaxConnections,
    MaxRequestBytes,
    MaxThrottle,
    Metrics,
    MoreListeners,
    PortRange,
    Principal,
    QueuedMaxRequestBytes,
    StateFile,
    StaticQuotas,
    Style,
    UnknownApis,
    UnknownPrincipal,
    Upstreams,
    UpstreamWindows,
    control_access,
    event_log_settings,
    parse_metrics_address,
)
from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.options.entity import checked_name
from kafka_quotas.cli.options.stores import CommandConfig, StoreUrl
from kafka_quotas.cli.options.windows import (
    ControllerWindowNum,
    ControllerWindowSize,
    QuotaWindowNum,
    QuotaWindowSize,
    WindowFile,
    chosen_windows,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.enforcement.config.address import parse_address, parse_addresses
from kafka_quotas.enforcement.config.broker_ports import parse_broker_addresses
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode, OnViolation, Scope
from kafka_quotas.enforcement.config.listener_file import ListenerFiles, all_listeners, parse_port_range
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
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
from kafka_quotas.enforcement.config.settings import ROTATE_S, TOP, DaemonSettings, MetricsChoice
from kafka_quotas.enforcement.daemon import run_daemon
from kafka_quotas.enforcement.telemetry.log import LogFormat
from kafka_quotas.stores.factory import open_store
from kafka_quotas.stores.store import Store

_INTERRUPTED = 130


def run(
    *,
    upstream: Upstreams,
    listen: Listen = "127.0.0.1:9092",
    store: StoreUrl = None,
    command_config: CommandConfig = None,
    static_quotas: StaticQuotas = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    controller_quota_window_num: ControllerWindowNum = None,
    controller_quota_window_size_seconds: ControllerWindowSize = None,
    window_file: WindowFile = None,
    upstream_windows: UpstreamWindows = False,
    throttle_style: Style = ThrottleStyle.MUTE,
    max_throttle_ms: MaxThrottle = None,
    mode: ModeOption = Mode.KAFKA,
    scope: ScopeOption = Scope.BROKER,
    fetch_over_quota: FetchOverQuotaOption = FetchOverQuota.DELIVER,
    on_violation: OnViolationOption = OnViolation.DELAY,
    mutations: MutationsOption = MutationMode.AUTO,
    mutation_algorithm: MutationAlgorithmOption = MutationAlgorithm.TOKEN_BUCKET,
    auto_create: AutoCreateOption = AutoCreate.COUNT,
    threshold_error: ThresholdErrorOption = ThresholdError.POLICY_VIOLATION,
    policy: PolicyFileOption = None,
    cost_model: CostModelOption = None,
    port_range: PortRange = None,
    broker_address: BrokerAddresses = None,
    advertised_host: AdvertisedHost = None,
    listener_config: ListenerConfig = None,
    listener: MoreListeners = None,
    connection_rate: ConnectionRate = None,
    max_connections: MaxConnections = None,
    unknown_apis: UnknownApis = UnknownApi.PASS,
    principal: Principal = None,
    unknown_principal: UnknownPrincipal = UNKNOWN_PRINCIPAL,
    internal_principal: InternalPrincipal = None,
    max_request_bytes: MaxRequestBytes = "100MiB",
    queued_max_request_bytes: QueuedMaxRequestBytes = "256MiB",
    metrics: Metrics = None,
    metrics_top: MetricsTop = TOP,
    metrics_user: MetricsUser = None,
    metrics_client: MetricsClient = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    control: Control = None,
    control_mode: ControlMode = "0600",
    control_user: ControlUser = None,
    state_file: StateFile = None,
    max_bucket_memory: MaxBucketMemory = "256MiB",
    event_log: EventLog = None,
    event_log_rotate: EventLogRotate = ROTATE_S,
    event_log_keep: EventLogKeep = "10GiB",
    event_log_config: EventLogConfig = None,
    cluster: Cluster = None,
    connect_timeout: ConnectTimeout = 10.0,
    drain_timeout: DrainTimeout = 10.0,
) -> int:
    """Run the daemon until a signal ends it: SIGTERM and Ctrl-C drain, SIGHUP reads the quotas again.

    It stays in the foreground and writes its log to standard error.
    """
    upstreams = parse_addresses(upstream)
    servers = ",".join(map(str, upstreams))
    windows = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
        bootstrap_server=servers if upstream_windows else None,
        command_config=command_config,
    )
    check_on_violation(on_violation, max_throttle_ms)
    rules = EnforcementRules(
        window=windows.client,
        throttle_style=throttle_style,
        max_throttle_ms=max_throttle_ms,
        mode=mode,
        scope=scope,
        fetch_over_quota=fetch_over_quota,
        on_violation=on_violation,
        mutation_window=windows.controller,
        mutations=MutationRules(mode=mutations, algorithm=mutation_algorithm, auto_create=auto_create),
        threshold_error=threshold_error,
        max_request_bytes=int(parse_bytes(max_request_bytes)),
        principal=None if principal is None else checked_name("--principal", principal),
        unknown_principal=checked_name("--unknown-principal", unknown_principal),
        unknown_apis=unknown_apis,
        internal_principals=frozenset(internal_principal or ()),
    )
    main = ListenerSettings(
        upstreams=upstreams,
        listen=parse_address(listen, may_be_zero=True),
        port_range=None if port_range is None else parse_port_range(port_range),
        broker_addresses=parse_broker_addresses(broker_address or ()),
        advertised_host=advertised_host,
    )
    files = ListenerFiles(main=main, more_of_main=listener_config, others=tuple(listener or ()))
    settings = DaemonSettings(
        listeners=all_listeners(files),
        listener_files=files,
        connection_rate=connection_rate,
        max_connections=max_connections,
        queued_max_request_bytes=int(parse_bytes(queued_max_request_bytes)),
        rules=rules,
        static_quotas=static_quotas,
        policy_file=policy,
        cost_model=cost_model,
        control=control,
        control_access=control_access(control_mode, control_user or ()),
        state_file=state_file,
        max_bucket_bytes=int(parse_bytes(max_bucket_memory)),
        metrics=None if metrics is None else parse_metrics_address(metrics),
        metrics_choice=MetricsChoice(
            top=metrics_top, users=frozenset(metrics_user or ()), client_ids=frozenset(metrics_client or ())
        ),
        log_format=log_format,
        connect_timeout_s=connect_timeout,
        drain_timeout_s=drain_timeout,
        event_log=None
        if event_log is None
        else event_log_settings(
            event_log,
            rotate_s=event_log_rotate,
            keep=event_log_keep,
            properties=event_log_config,
            cluster=cluster or servers,
        ),
    )
    choice = choose_store(store=store, command_config=command_config)
    if static_quotas is not None and (choice.url.value or "").startswith("static:"):
        raise UsageError("--static-quotas goes below another store", hint="leave it out: --store names such a file")

    def opened() -> Store:
        return open_store(choice.url.value, settings=choice.settings())

    result = run_daemon(settings, opened, log=sys.stderr)
    return _INTERRUPTED if result.signal_name == "SIGINT" else int(result.cut_connections > 0)

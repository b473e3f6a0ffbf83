"""The daemon: a Kafka-wire-protocol proxy that holds clients to their quotas."""

from typing import TYPE_CHECKING

from kafka_quotas.doors import lazy_names

if TYPE_CHECKING:
    from kafka_quotas.enforcement.config.address import Address, parse_address, parse_local_address
    from kafka_quotas.enforcement.config.client_policy import policy_problems, read_groups, read_policy_file
    from kafka_quotas.enforcement.config.cost_model_file import cost_model_to_json, read_cost_model, write_cost_model
    from kafka_quotas.enforcement.config.listener_settings import PROPERTIES, SECURITY_PROTOCOLS, listener_problems
    from kafka_quotas.enforcement.config.rules import ANONYMOUS
    from kafka_quotas.enforcement.config.settings import DaemonSettings, MetricsChoice
    from kafka_quotas.enforcement.config.toml_table import table_path, toml_part
    from kafka_quotas.enforcement.control.client import (
        DecisionClient,
        RefusedError,
        ask_groups,
        ask_reload,
        ask_status,
        ask_unmute,
        find_control_path,
    )
    from kafka_quotas.enforcement.control.server import MAX_PATH_BYTES, ControlError
    from kafka_quotas.enforcement.daemon.daemon import run_daemon
    from kafka_quotas.enforcement.decisions import (
        ANY_QUOTA_TYPES,
        AnyQuotaType,
        Decision,
        DecisionError,
        DecisionRequest,
        Operation,
        decision_to_json,
    )
    from kafka_quotas.enforcement.monitoring.endpoints import (
        QUOTA_FAMILIES,
        DaemonView,
        Pages,
        bucket_families,
        exposition,
        metric_family,
        metric_routes,
        record_families,
    )
    from kafka_quotas.enforcement.monitoring.http_server import (
        HttpHandler,
        HttpReply,
        HttpServer,
        Query,
        json_reply,
        serve_until_stopped,
    )
    from kafka_quotas.enforcement.monitoring.status_facts import status_facts
    from kafka_quotas.enforcement.monitoring.status_reporter import MAX_NAMED
    from kafka_quotas.enforcement.proxy.proxy_quotas import STATIC_SCHEME
    from kafka_quotas.enforcement.proxy.proxy_server import Unmuted
    from kafka_quotas.enforcement.quotas.calibration import (
        ROUNDS,
        WARM_UP_S,
        Calibration,
        MeasuredProbe,
        SendProbe,
        budget_percentage,
    )
    from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER
    from kafka_quotas.enforcement.quotas.store_watcher import Reloaded
    from kafka_quotas.enforcement.telemetry.log import error_text
    from kafka_quotas.enforcement.telemetry.status import (
        MAX_ROWS,
        BucketRow,
        DaemonStatus,
        HourRow,
        StoreRow,
        run_sliced,
    )
    from kafka_quotas.enforcement.telemetry.throttle_stats import OTHERS, ThrottleHistory

__getattr__, __dir__ = lazy_names(__name__)

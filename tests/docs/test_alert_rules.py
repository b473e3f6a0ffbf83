"""Alert rules judged by Prometheus' own `promtool test rules`: each fires for what it is about, and alone."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DAEMON = EXAMPLES / "daemon" / "prometheus-alerts.yml"
BROKERS = EXAMPLES / "prometheus" / "kafka-quota-alerts.yml"
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian's prometheus) not installed"
)
TARGET = 'job="kubernetes-pods",instance="10.0.0.7:9404"'
"""A daemon as the annotations of the shipped manifest have it scraped: the job has no name of ours."""
OTHER = 'kafka_quotas_limits{job="kafka-quotas",instance="10.0.0.8:9404"}'
READY = OTHER.replace("limits", "ready")
"""Another daemon, which stays."""
LOOK = 'kafka_quotas_look_success{look="store"}'
AGE = 'kafka_quotas_look_age_seconds{look="metrics"}'
CALM = {
    OTHER: "5x60",
    READY: "1x60",
    "up": "1x60",
    "kafka_quotas_limits": "5x60",
    "kafka_quotas_ready": "1x60",
    "kafka_quotas_draining": "0x60",
    "kafka_quotas_connections": "40x60",
    "kafka_quotas_store_reachable": "1x60",
    "kafka_quotas_store_age_seconds": "0x60",
    "kafka_quotas_state_age_seconds": "5x60",
    "kafka_quotas_event_loop_longest_stall_seconds": "0.01x60",
    "kafka_quotas_fleet_cut_off": "0x60",
    "kafka_quotas_fleet_not_trusted": "0x60",
    "kafka_quotas_fleet_wrong_clocks": "0x60",
    "process_open_fds": "100x60",
    "process_max_fds": "1000x60",
    "kafka_quotas_drift": "0x60",
    "kafka_quotas_without_effect": "0x60",
    LOOK: "1x60",
    LOOK.replace("store", "metrics"): "1x60",
    AGE: "20x60",
    **{f"kafka_server_{kind}_quota_utilization": "80x60" for kind in ("produce", "fetch", "request", "requestrate")},
    **{
        f"kafka_server_{kind}_queue_size": "2x60"
        for kind in ("produce", "fetch", "request", "controllermutation", "requestrate")
    },
    **{f"kafka_server_{kind}_throttle_time": "200x60" for kind in ("produce", "fetch")},
    **{f"kafka_server_{kind}_upstream_throttles_total": "7x60" for kind in ("produce", "fetch")},
    **{
        f"kafka_quotas_{name}_total": "3x60"
        for name in (
            "state_save_failures",
            "upstream_connect_failures",
            "unknown_principals",
            "events_dropped",
            "accept_failures",
            "buckets_evicted",
            "worker_restarts",
            "fleet_topic_refusals",
        )
    },
}
"""An hour of a daemon about which nobody has to be woken, a sample a minute, by metric."""
BROKER = 'kafka_server_quota_byte_rate{resource="Produce",instance="b1"}'
THROTTLED = 'kafka_server_quota_throttle_time{instance="b1",resource="Produce",user="u",clientId="c"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What makes an alert fire, what does nearly, and a part of what the alert says."""

    fires: dict[str, str]
    """Series in place of those of the calm hour, by metric; `""` for one that is not there."""
    calm: dict[str, str] = field(default_factory=dict)
    """The same for an hour in which it does not fire, which is beside the case."""
    says: str = ""
    rules: Path = DAEMON
    beside: str = ""
    """Another alert that fires of the same."""


def counting(name: str, **options: Any) -> Case:
    """A case of a counter that grows."""
    return Case(fires={f"kafka_quotas_{name}_total": "3+1x60"}, **options)


CASES = {
    "KafkaQuotasExporterDown": Case(
        fires={"up": "1x20 0x40", LOOK: "1x20 stale", "kafka_quotas_ready": ""},
        calm={"up": "0x60", LOOK: "", "kafka_quotas_ready": ""},
    ),
    "KafkaQuotasLookFails": Case(
        fires={LOOK.replace("store", "metrics"): "0x60", AGE: "0+60x60"},
        calm={LOOK.replace("store", "metrics"): "0x60", AGE: "200x60"},
        says="can't look at metrics  for 1h 0m 0s",
    ),
    "KafkaQuotasDrift": Case(
        fires={"kafka_quotas_drift": "3x60"}, calm={"kafka_quotas_drift": "0x53 3x7"}, says="3 quotas are other"
    ),
    "KafkaQuotasWithoutEffect": Case(
        fires={"kafka_quotas_without_effect": "2x60"}, calm={"kafka_quotas_without_effect": "0x20 2x40"}
    ),
    "KafkaQuotasNearlyUsed": Case(
        fires={"kafka_server_request_quota_utilization": "97x60"},
        calm={"kafka_server_request_quota_utilization": "90x60"},
        says="uses 97 % of its limit",
    ),
    "KafkaQuotasDaemonDown": Case(
        fires={"up": "1x20 0x40", "kafka_quotas_ready": "1x20 stale", LOOK: ""},
        calm={"up": "0x60", "kafka_quotas_ready": "", LOOK: ""},
    ),
    "KafkaQuotasNoDaemon": Case(
        fires={"up": "1x20 stale", "kafka_quotas_limits": "5x20 stale", OTHER: "5x20 stale"},
        calm={"up": "1x20 stale", "kafka_quotas_ready": ""},
    ),
    "KafkaQuotasNotReady": Case(
        fires={"kafka_quotas_ready": "1x20 0x40"},
        calm={"kafka_quotas_ready": "1x20 0x40", "kafka_quotas_draining": "0x19 1x40"},
    ),
    "KafkaQuotasStoreLost": Case(
        fires={"kafka_quotas_store_reachable": "0x60", "kafka_quotas_store_age_seconds": "0+60x60"},
        calm={"kafka_quotas_store_reachable": "0x60", "kafka_quotas_store_age_seconds": "200x60"},
        says="has not read its store for 1h 0m 0s",
    ),
    "KafkaQuotasStateNotSaved": Case(
        fires={"kafka_quotas_state_age_seconds": "5+60x60"}, calm={"kafka_quotas_state_age_seconds": "60x60"}
    ),
    "KafkaQuotasUpstreamUnreachable": counting("upstream_connect_failures"),
    "KafkaQuotasNearlyAllClientsWait": Case(
        fires={"kafka_server_requestrate_queue_size": "10x60", "kafka_server_controllermutation_queue_size": "9x60"},
        calm={"kafka_server_requestrate_queue_size": "10x60"},
    ),
    "KafkaQuotasLongThrottle": Case(
        fires={"kafka_server_fetch_throttle_time": "40000x60"},
        calm={"kafka_server_fetch_throttle_time": "30000x60"},
        says="waits 40000 ms",
    ),
    "KafkaQuotasTwoEnforcers": Case(fires={"kafka_server_fetch_upstream_throttles_total": "7+1x60"}),
    "KafkaQuotasPrincipalsUnknown": counting("unknown_principals"),
    "KafkaQuotasEventsLost": counting("events_dropped"),
    "KafkaQuotasFewDescriptorsLeft": Case(
        fires={"process_open_fds": "900x60"}, calm={"process_open_fds": "900x60", "kafka_quotas_limits": ""}
    ),
    "KafkaQuotasEventLoopStalls": Case(
        fires={"kafka_quotas_event_loop_longest_stall_seconds": "1.5x60"},
        calm={"kafka_quotas_event_loop_longest_stall_seconds": "0.4x60"},
        says="serves nobody for up to 1.5s",
    ),
    "KafkaQuotasAcceptFailures": counting("accept_failures"),
    "KafkaQuotasBucketsEvicted": counting("buckets_evicted"),
    "KafkaQuotasWorkerRestarts": counting("worker_restarts"),
    "KafkaQuotasFleetCutOff": Case(fires={"kafka_quotas_fleet_cut_off": "1x60"}),
    "KafkaQuotasFleetNotTrusted": Case(
        fires={"kafka_quotas_fleet_not_trusted": "2x60"},
        calm={"kafka_quotas_fleet_not_trusted": "0x53 2x7"},
        says="leaves out 2 members",
    ),
    "KafkaQuotasFleetReportsRefused": Case(
        fires={f'kafka_quotas_fleet_refused_reports_total{{{TARGET},reason="unsigned"}}': "0+5x60"},
        calm={f'kafka_quotas_fleet_refused_reports_total{{{TARGET},reason="old"}}': "0+1x60"},
    ),
    "KafkaQuotasFleetTopicAttempts": counting("fleet_topic_refusals"),
    "KafkaQuotasFleetWrongClocks": Case(fires={"kafka_quotas_fleet_wrong_clocks": "1x60"}),
    "KafkaClientThrottled": Case(
        rules=BROKERS, fires={THROTTLED: "150x60"}, calm={THROTTLED: "90x60"}, says="by 150 ms on average"
    ),
    "KafkaClientThrottledHard": Case(rules=BROKERS, fires={THROTTLED: "20000x60"}, beside="KafkaClientThrottled"),
    "KafkaManyClientsThrottled": Case(
        rules=BROKERS,
        fires={THROTTLED.replace('"c"', f'"{number}"'): "5x60" for number in range(21)},
        calm={THROTTLED.replace('"c"', f'"{number}"'): "5x60" for number in range(20)},
        says="21 buckets of Produce",
    ),
    "KafkaRequestQuotaNearlyUsed": Case(
        rules=BROKERS,
        fires={'kafka_server_quota_request_time{resource="Request",instance="b1",user="u",clientId="c"}': "180x60"},
        calm={'kafka_server_quota_request_time{resource="Produce",instance="b1",user="u",clientId="c"}': "180x60"},
    ),
    "KafkaQuotaMetricsMissing": Case(
        rules=BROKERS,
        fires={BROKER: "", BROKER.replace("Produce", "Fetch"): "1x60"},
    ),
}


def _of_target(name: str) -> str:
    """The series with the labels of the target, unless it has an instance of its own."""
    metric, _, labels = name.partition("{")
    return name if "instance=" in labels else f"{metric}{{{TARGET}{',' if labels else ''}{labels or '}'}"


def series(case: Case, changes: dict[str, str]) -> list[dict[str, str]]:
    """The input of an hour: the daemon's calm one but for some series, or for brokers these series alone."""
    values = {**(CALM if case.rules == DAEMON else {BROKER: "1x60"}), **changes}
    named = {_of_target(name): value for name, value in values.items()}
    return [{"series": name, "values": value} for name, value in named.items() if value]


VANISHED = "a daemon that vanished"
"""The name of one more hour."""


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The alerts that fire at the end of each case's two hours, by the names of those, and what they say.

    Each of the files with rules is tested at once.
    """
    folder = tmp_path_factory.mktemp("hours")
    gone = {"up": "1x20 stale", "kafka_quotas_ready": "1x20 stale", READY: "1x20 stale"}
    hours = {f"{name} fires": (case, case.fires) for name, case in CASES.items()}
    hours |= {f"{name} calm": (case, case.calm) for name, case in CASES.items()}
    hours[VANISHED] = (CASES["KafkaQuotasNoDaemon"], gone)
    found: dict[str, dict[str, str]] = {hour: {} for hour in hours}
    for rules in (DAEMON, BROKERS):
        names = re.findall(r"alert: (\w+)", rules.read_text(encoding="utf-8"))
        # Where none is expected, promtool prints every one that fires.
        expected = [{"alertname": name, "eval_time": "1h", "exp_alerts": []} for name in names]
        tests = [
            {"name": hour, "interval": "1m", "input_series": series(case, changes), "alert_rule_test": expected}
            for hour, (case, changes) in hours.items()
            if case.rules == rules
        ]
        path = folder / f"{rules.stem}.json"
        content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
        path.write_text(json.dumps(content), encoding="utf-8")
        command = ["promtool", "test", "rules", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        _, *parts = re.split("^ *name: ", done.stdout + done.stderr, flags=re.MULTILINE)
        assert parts, done.stdout + done.stderr
        for part in parts:
            hour, alert, said = re.split(r",\s+alertname: |, time:", part, maxsplit=2)
            found[hour][alert] = said
    return found


def test_every_alert_has_a_case() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in (DAEMON, BROKERS))
    assert set(re.findall(r"alert: (\w+)", texts)) == set(CASES)


@NEEDS_PROMTOOL
def test_a_daemon_that_vanished_beside_an_exporter_is_missed(fired: dict[str, dict[str, str]]) -> None:
    assert set(fired[VANISHED]) == {"KafkaQuotasNoDaemon"}


@NEEDS_PROMTOOL
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_alone_where_it_should_and_not_where_it_nearly_should(
    name: str, fired: dict[str, dict[str, str]]
) -> None:
    found = fired[f"{name} fires"]
    assert set(found) - {CASES[name].beside} == {name}, found
    assert CASES[name].says in found[name]
    assert fired[f"{name} calm"] == {}


def test_no_expression_names_a_job() -> None:
    """Prometheus has the name of the job from its own configuration, that of Kubernetes' annotations for example."""
    texts = [DAEMON.read_text(encoding="utf-8"), (EXAMPLES / "daemon" / "grafana-dashboard.json").read_text()]
    assert [re.findall(r"job\s*[=!]~?", text) for text in texts] == [[], []]

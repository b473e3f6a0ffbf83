"""Rates and throttle times of brokers: read from metrics in every naming style, and judged."""

from pathlib import Path

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.metric_names import (
    BUILT_IN,
    MetricNames,
    NameRule,
    parse_metrics,
    read_metric_names,
    usages_of,
)
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.core.resolution.usage import Usage, ending_limit, is_held_back, share_used, usage_under

EXAMPLE = Path(__file__).parents[4] / "examples" / "prometheus" / "metric-names.toml"
PRODUCE = "producer_byte_rate"

STYLES = {
    "exporter": """
# HELP kafka_server_quota_byte_rate Rate of a quota
# TYPE kafka_server_quota_byte_rate gauge
kafka_server_quota_byte_rate{resource="Produce",user="al%20ice",clientId="app",} 1.5E6
kafka_server_quota_throttle_time{resource="Produce",user="al%20ice",clientId="app",} 250.0
kafka_server_quota_request_time{resource="Request",user="al%20ice",} 12.5
kafka_server_quota_throttle_time{resource="Request",user="al%20ice",} NaN
kafka_server_quota_queue_size{resource="Produce",} 3.0
""",
    "by type": """
kafka_server_Produce_byte_rate{user="al%20ice",clientId="app"} 1500000
kafka_server_Produce_throttle_time{user="al%20ice",clientId="app"} 250 1700000000000
kafka_server_Request_request_time{user="al%20ice"} 12.5
kafka_server_Request_exempt_request_time 1
kafka_server_Produce_queue_size 3.0
""",
    "lower case, no rules": """
kafka_server_produce_byte_rate{client_id="app",user="al%20ice"} 1500000 # {trace="x"} 1
kafka_server_produce_throttle_time{client_id="app",user="al%20ice"} 250
kafka_server_request_request_time{client_id="",user="al%20ice"} 12.5
kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 9
""",
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("names", [BUILT_IN, read_metric_names(EXAMPLE)], ids=["built in", "example file"])
def test_every_style_of_names_says_the_same(text: str, names: MetricNames) -> None:
    assert sorted(usages_of(parse_metrics(text), names=names, broker="b:7071"), key=lambda usage: usage.key) == [
        Usage(broker="b:7071", key=PRODUCE, user="al ice", client_id="app", observed=1.5e6, throttle_ms=250.0),
        Usage(broker="b:7071", key="request_percentage", user="al ice", client_id="", observed=12.5),
    ]


def test_a_label_tells_the_broker() -> None:
    text = 'kafka_server_fetch_byte_rate{instance="k1:7071",client_id="app"} 5\n'
    text += 'kafka_server_fetch_byte_rate{instance="k2:7071",client_id="app"} 6\n'
    found = usages_of(parse_metrics(text), names=BUILT_IN, broker="prometheus:9090")
    assert [(usage.broker, usage.key, usage.observed) for usage in found] == [
        ("k1:7071", "consumer_byte_rate", 5.0),
        ("k2:7071", "consumer_byte_rate", 6.0),
    ]


def test_mutations_are_read_by_their_rate() -> None:
    text = 'kafka_server_quota_mutation_rate{resource="ControllerMutation",user="a"} 5\n'
    text += 'kafka_server_quota_tokens{resource="ControllerMutation",user="a"} -7\n'
    (usage,) = usages_of(parse_metrics(text), names=BUILT_IN, broker="b")
    assert (usage.key, usage.observed) == ("controller_mutation_rate", 5.0)


def test_names_of_ones_own() -> None:
    names = MetricNames(
        rules=(NameRule(pattern=r"mine_(?P<attribute>\w+)", type_label="t", user_label="u", client_id_label="c"),),
        broker_labels=("node",),
    )
    text = 'mine_byte_rate{t="Fetch",u="a",c="b",node="3"} 7\nkafka_server_fetch_byte_rate{user="a"} 8\n'
    assert usages_of(parse_metrics(text), names=names, broker="?") == [
        Usage(broker="3", key="consumer_byte_rate", user="a", client_id="b", observed=7.0)
    ]


def test_what_cannot_be_read_is_passed_over() -> None:
    text = 'a_metric{x="1"\nkafka_server_fetch_byte_rate{user="a"} many\n\n{} 1\nok{a="\\"q\\\\\\n"} +Inf\n'
    (sample,) = parse_metrics(text)
    assert (sample.name, sample.labels, sample.value) == ("ok", {"a": '"q\\\n'}, float("inf"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "rule is missing"),
        ("rule = 3", "rule: 3 is not a list"),
        ("rule = []", "no rules"),
        ("[[rule]]\npattern='x'", "user_label is missing"),
        ("[[rule]]\npattern='x'\nuser_label='u'\nclient_id_label='c'", "does not say enough"),
        ("[[rule]]\npattern='(?P<attribute>x'\nuser_label='u'\nclient_id_label='c'", "not a pattern"),
        ("rules = []", r"rule is missing \(and 1 more\)"),
        (
            "broker_labels = 'b'\n[[rule]]\npattern='(?P<type>x)(?P<attribute>y)'\nuser_label='u'\nclient_id_label='c'",
            "broker_labels: 'b' is not a list",
        ),
        ("= =", "not TOML"),
    ],
)
def test_a_file_of_names_that_says_too_little(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "names.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_metric_names(path)


def test_the_selector_has_no_named_groups() -> None:
    assert "?P<" not in BUILT_IN.selector()
    assert BUILT_IN.selector().startswith("(?i)(kafka_server_quota_")


def usage(observed: float, throttle_ms: float | None = None, *, user: str = "", client_id: str = "app") -> Usage:
    return Usage(broker="1", key=PRODUCE, user=user, client_id=client_id, observed=observed, throttle_ms=throttle_ms)


@pytest.mark.parametrize(
    ("seen", "limit", "held"),
    [
        (usage(5.0, 100.0), 10.0, True),
        (usage(50.0, 0.0), 10.0, False),
        (usage(50.0), 10.0, True),
        (usage(5.0), 10.0, False),
        (usage(50.0, 100.0), None, False),
    ],
)
def test_who_is_held_back(seen: Usage, limit: float | None, held: bool) -> None:
    assert is_held_back(seen, limit) is held


def test_the_limit_that_would_end_throttling_is_kafkas_formula_turned_round() -> None:
    """60 MB in 10 s against 5 MB/s: the rate is 6 MB/s, the throttle time (6 - 5) / 5 * 10 s = 2 s."""
    window = QuotaWindow(samples=11, window_s=1)
    assert ending_limit(PRODUCE, 5e6, [usage(5e6, 2000.0)], window=window) == 6e6
    assert ending_limit(PRODUCE, 5e6, [usage(7e6, 2000.0), usage(1e6, 0.0)], window=window) == 7e6
    assert ending_limit(PRODUCE, 5e6, [usage(4e6, 0.0)], window=window) is None
    assert ending_limit(PRODUCE, 3.0, [usage(3.2, 1.0)], window=window) == 4.0
    percent = Usage(broker="1", key="request_percentage", user="a", client_id="", observed=12.5, throttle_ms=1000.0)
    assert ending_limit("request_percentage", 10.0, [percent], window=window) == 12.5


def test_shares_are_of_real_limits_only() -> None:
    assert share_used(5.0, 10.0) == 0.5
    assert [share_used(5.0, limit) for limit in (None, 0.0, 9223372036854775807.0)] == [None] * 3


def test_a_client_is_found_by_its_bucket() -> None:
    quotas = EffectiveQuotas(
        [(Entity.of(user="al ice"), {PRODUCE: 10.0}), (Entity.of(client_id="app"), {PRODUCE: 5.0})]
    )
    seen = [usage(1.0, user="al ice", client_id=""), usage(2.0), usage(3.0, client_id="other")]
    of_alice, of_bob = (quotas.for_client(user, "app")[0] for user in ("al ice", "bob"))
    assert usage_under(of_alice, seen) == (seen[0],)
    assert usage_under(of_bob, seen) == (seen[1],)

"""Files that describe listeners."""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import Address, BrokerAddress
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings, read_listener, refuse_restart
from kafka_quotas.enforcement.config.rules import EnforcementRules, parse_apis, parse_denied_apis
from kafka_quotas.enforcement.config.settings import DaemonSettings

PLACES = "listen=0.0.0.0:19094\nupstream=broker-1:9094\n"
MAIN = ListenerSettings(
    upstreams=(Address(host="b", port=1),), listen=Address(host="l", port=2), advertised_host="kept", port_range=(1, 2)
)


def written(folder: Path, text: str, *, name: str = "external") -> Path:
    path = folder / f"{name}.properties"
    path.write_text(text)
    return path


def listeners(**files: Any) -> tuple[ListenerSettings, ...]:
    return DaemonSettings(main=MAIN, **files).completed().listeners


def test_every_property_is_understood(tmp_path: Path) -> None:
    text = PLACES + (
        "upstream.node.id=3\nport.range=19095-19099\nadvertised.host=kafka.example\n"
        "broker.host.pattern=b$(nodeId).kafka.example\nbroker.addresses=7=special.kafka.example:19094\nsecurity.protocol=sasl_ssl\nssl.keystore.location=/k.pem\n"
        "ssl.client.auth=requested\nssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/L, DEFAULT\n"
        "upstream.security.protocol=SSL\nupstream.ssl.truststore.location=/t.pem\nprincipal=partner\n"
        "sasl.oauthbearer.sub.claim.name=email\nproxy.protocol.trusted=10.0.0.0/8, ::1\nmax.connections=100\n"
        "max.connections.per.ip=10\nmax.connection.creation.rate=20\nconnections.max.idle.ms=-1\n"
        "max.in.flight.requests.per.connection=7\napis.allow=Produce, 3,apiversions\napis.deny=metadata\n"
    )
    listener = read_listener(written(tmp_path, text))
    assert listener == ListenerSettings(
        name="external",
        listen=Address(host="0.0.0.0", port=19094),
        upstreams=(Address(host="broker-1", port=9094),),
        upstream_node_id=3,
        port_range=(19095, 19099),
        advertised_host="kafka.example",
        host_pattern="b$(nodeId).kafka.example",
        broker_addresses=(BrokerAddress(first=7, last=7, host="special.kafka.example", port=19094),),
        principal="partner",
        security_protocol="SASL_SSL",
        upstream_security_protocol="SSL",
        oauthbearer_claim="email",
        principal_mapping="RULE:^CN=(.*?),.*$/$1/L, DEFAULT",
        ssl={
            "ssl.keystore.location": "/k.pem",
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L, DEFAULT",
        },
        upstream_ssl={"ssl.truststore.location": "/t.pem"},
        proxy_sources=(ip_network("10.0.0.0/8"), ip_network("::1")),
        connection_rate=20,
        max_connections=100,
        max_connections_per_ip=10,
        max_idle_ms=None,
        max_in_flight=7,
        allowed_apis=frozenset({0, 3, 18}),
        denied_apis=frozenset({3}),
    )
    assert (listener.shares_port, listener.requires_authentication) == (True, True)
    assert (listener.node_of("Special.kafka.example"), listener.node_of("b8.kafka.example")) == (7, 8)
    assert listener.broker_host(7) == "special.kafka.example"


@pytest.mark.parametrize(
    ("digits", "node_id"),
    [("0", 0), ("1000000000", 1_000_000_000), ("2147483647", 2_147_483_647)]
    + [(digits, None) for digits in ("", "2147483648", "9999999999", "10000000000", "1" * 200, "-1", "1a", "\u0661")],
)
def test_a_node_id_in_a_host_name_is_any_that_a_broker_may_have(digits: str, node_id: int | None) -> None:
    listener = replace(MAIN, host_pattern="b$(nodeId).kafka.example")
    assert listener.node_of(f"B{digits}.kafka.example") == node_id


def test_a_principal_is_a_text_that_can_be_written(tmp_path: Path) -> None:
    assert read_listener(written(tmp_path, PLACES + "principal=a\\ud800\n")).principal == "a\ufffd"


def test_limits_that_nobody_set_are_there_all_the_same() -> None:
    assert (MAIN.max_idle_ms, MAIN.max_in_flight, MAIN.allowed_apis) == (600_000, 1000, None)


def test_of_two_lists_the_denied_one_wins_and_a_login_always_passes() -> None:
    rules = EnforcementRules(allowed_apis=parse_apis("Produce,Metadata"), denied_apis=parse_denied_apis("Metadata"))
    assert [key for key in range(90) if rules.serves(key)] == [0, 17, 18, 36]


def test_the_main_listener_is_completed_and_keeps_what_options_said(tmp_path: Path) -> None:
    (main,) = listeners(listener_config=written(tmp_path, "max.connections=5\n"))
    assert (main.name, main.advertised_host, main.port_range, main.max_connections) == ("main", "kept", (1, 2), 5)
    assert listeners() == (MAIN,)


def test_listeners_have_names_of_their_own(tmp_path: Path) -> None:
    first = written(tmp_path, PLACES)
    (tmp_path / "again").mkdir()
    second = written(tmp_path / "again", PLACES)
    assert [listener.name for listener in listeners(listener_files=(first,))] == ["main", "external"]
    with pytest.raises(UsageError, match="two listeners are called external"):
        listeners(listener_files=(first, second))


def test_what_only_a_restart_can_change_is_named_and_what_can_change_is_not_refused(tmp_path: Path) -> None:
    live = (
        "max.connections=5\nmax.connections.per.ip=2\nmax.connection.creation.rate=9\nprincipal=p\nadvertised.host=h\n"
    )
    path = written(tmp_path, PLACES)
    before = read_listener(path)
    refuse_restart(before, read_listener(written(tmp_path, PLACES + "\n" + live)), path)
    fixed = "\nport.range=7000-7001\nsecurity.protocol=SASL_PLAINTEXT\nproxy.protocol.trusted=127.0.0.1\n"
    now = read_listener(written(tmp_path, PLACES + fixed))
    with pytest.raises(UsageError, match=r"port\.range, security\.protocol, proxy\.protocol\.trusted can't change"):
        refuse_restart(before, now, path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen=127.0.0.1:1", "upstream missing"),
        ("", "listen and upstream missing"),
        (PLACES + "port.range=9-1", "not a range of ports"),
        (PLACES + "max.connections.per.ip=-1", "max.connections.per.ip"),
        (PLACES + "upstream.security.protocol=TLS", "upstream.security.protocol"),
        (PLACES + "proxy.protocol.trusted=", "names no network"),
        (PLACES + "upstream.node.id=1\nupstream=b1:1,b2:1", "several upstreams"),
        (PLACES + "upstream.node.id=2147483648", "upstream.node.id: not a whole number from 0 to 2147483647"),
        (PLACES + "max.connections=" + "9" * 5000, "max.connections: not a whole number from 1 to 2147483647"),
        (PLACES + "broker.addresses=1:20001", "not an address of a broker"),
        (PLACES + "ssl.principal.mapping.rules=RULE:^CN=(.*)$/${name}/", "no group called 'name'"),
        (PLACES + "ssl.principal.mapping.rules=DEFAULT,RULE:^CN=(?<name>.*)$/$1-${nam}/", "no group called 'nam'"),
        (PLACES + "sasl.mechanism=PLAIN", "unknown property sasl.mechanism"),
        (PLACES + "apis.allow=", "apis.allow: it names no API"),
        (PLACES + "apis.deny=Produce,Nonsense", "there is no API 'Nonsense'"),
        (PLACES + "apis.deny=ApiVersions", "clients can't do without ApiVersions"),
        (PLACES + "apis.allow=40000", "there is no API '40000'"),
        (PLACES + "connections.max.idle.ms=0", "connections.max.idle.ms: not a whole number from 1 to 92233720368547"),
        (PLACES + "max.in.flight.requests.per.connection=many", "not a whole number from 1 to 2147483647: 'many'"),
    ],
)
def test_what_cannot_be_meant_is_said_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read_listener(written(tmp_path, text))
    assert "external.properties" in refused.value.message


def test_a_listener_may_be_a_table_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "daemon.toml").write_text(
        "[listener.internal]\nlisten = '0.0.0.0:19094'\nupstream = 'broker-1:9094'\n"
        "port.range = '19095-19099'\n'max.connections' = 7\n'apis.allow' = ['Produce', 'Fetch']\n"
    )
    found = read_listener(tmp_path / "daemon.toml#listener.internal")
    assert (found.name, found.port_range, found.max_connections) == ("internal", (19095, 19099), 7)
    assert (found.allowed_apis, found.denied_apis) == (parse_apis("Produce,Fetch"), frozenset())
    (tmp_path / "daemon.toml").write_text("[listener.internal]\nlisten = [1]\nupstream = 'b:1'\n")
    with pytest.raises(UsageError, match=r"daemon\.toml#listener\.internal: listen is neither a text"):
        read_listener(tmp_path / "daemon.toml#listener.internal")

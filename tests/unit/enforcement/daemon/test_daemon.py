"""The lines with which a daemon starts: the rules in force, and why it may limit nobody or serve nobody."""

import asyncio
from pathlib import Path

import pytest

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.daemon import daemon as daemon_module
from kafka_quotas.enforcement.daemon.daemon import log_listening, log_reaching, log_rules
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel

BROKERS = [Address(host=f"broker-{number}", port=9092) for number in (1, 2)]


def test_a_daemon_that_limits_nobody_says_so_as_a_warning() -> None:
    quiet: list[LogEvent] = []
    log_listening({"store": "local:x.db"}, quiet.append, enforces_nothing=False)
    assert [each.level for each in quiet] == [LogLevel.INFO]
    loud: list[LogEvent] = []
    log_listening({"store": "local:x.db"}, loud.append, enforces_nothing=True)
    assert [each.level for each in loud] == [LogLevel.INFO, LogLevel.WARNING]
    assert loud[1].fields == {"store": "local:x.db"}


def test_the_rules_in_force_name_the_files_that_are_given() -> None:
    listener = ListenerSettings(listen=Address(host="127.0.0.1", port=0), upstreams=(BROKERS[0],))
    events: list[LogEvent] = []
    log_rules(DaemonSettings(main=listener, policy_file=Path("p.toml")), events.append)
    (event,) = events
    assert event.fields["policy"] == "p.toml"
    assert event.fields["mode"] == "kafka"
    assert event.fields["window"] == "11x1s"
    assert "cost_model" not in event.fields


def test_brokers_that_nobody_reaches_are_reported_until_one_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "RETRY_S", 0)
    tries: list[Address] = []
    events: list[LogEvent] = []

    async def probe(address: Address) -> bool:
        tries.append(address)
        return len(tries) > len(BROKERS)

    async def run() -> None:
        health = UpstreamHealth(probe=probe)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        monkeypatch.setattr(loop, "time", lambda: started_s + 10 * len(tries))
        await log_reaching(BROKERS, health, events.append)

    asyncio.run(run())
    assert [(each.level, each.fields["upstream"]) for each in events] == [
        (LogLevel.WARNING, "broker-1:9092,broker-2:9092"),
        (LogLevel.INFO, "broker-1:9092"),
    ]


def test_a_broker_that_is_there_is_named_without_a_warning() -> None:
    events: list[LogEvent] = []

    async def probe(_: Address) -> bool:
        return True

    asyncio.run(log_reaching(BROKERS, UpstreamHealth(probe=probe), events.append))
    assert [(each.level, each.fields["upstream"]) for each in events] == [(LogLevel.INFO, "broker-1:9092")]

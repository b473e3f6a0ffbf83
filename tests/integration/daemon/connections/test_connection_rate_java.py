"""Connection rates against Kafka's own `ConnectionQuotas`, delay by delay, on a clock that both are given."""

import random
import subprocess
from pathlib import Path

import pytest
from tests.support.brokers.maven import KAFKA_4, jars

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.stores.store import QuotaEntry

PROGRAM = """
import java.io.*;
import java.net.InetAddress;
import java.util.*;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.ConnectionThrottledException;

public class Connections {
    static long now = 0;
    static class Clock implements Time {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000L; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.quorum.voters", "2@localhost:1");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listeners", "PLAINTEXT://localhost:9092");
        properties.put("quota.window.num", arguments[0]);
        properties.put("quota.window.size.seconds", arguments[1]);
        properties.put("max.connection.creation.rate", arguments[2]);
        properties.put("listener.name.plaintext.max.connection.creation.rate", arguments[3]);
        KafkaConfig config = KafkaConfig.fromProps(properties);
        Clock clock = new Clock();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line = in.readLine();
        now = Long.parseLong(line);
        ConnectionQuotas quotas = new ConnectionQuotas(config, clock, new Metrics(clock));
        ListenerName listener = new ListenerName("PLAINTEXT");
        quotas.addListener(config, listener);
        var record = ConnectionQuotas.class.getDeclaredMethod(
            "recordConnectionAndGetThrottleTimeMs", ListenerName.class, long.class);
        record.setAccessible(true);
        var recordIp = ConnectionQuotas.class.getDeclaredMethod(
            "recordIpConnectionMaybeThrottle", ListenerName.class, InetAddress.class);
        recordIp.setAccessible(true);
        while ((line = in.readLine()) != null) {
            String[] parts = line.split(" ");
            now = Long.parseLong(parts[1]);
            if (parts[0].equals("limit")) {
                scala.Option<InetAddress> ip = parts[2].equals("-") ? scala.Option.empty()
                    : scala.Option.apply(InetAddress.getByName(parts[2]));
                scala.Option<Object> limit = parts[3].equals("-") ? scala.Option.empty()
                    : scala.Option.apply((Object) Integer.parseInt(parts[3]));
                quotas.updateIpConnectionRateQuota(ip, limit);
            } else if (parts[0].equals("listener")) {
                System.out.println(record.invoke(quotas, listener, now));
            } else {
                try {
                    recordIp.invoke(quotas, listener, InetAddress.getByName(parts[2]));
                    System.out.println(0);
                } catch (java.lang.reflect.InvocationTargetException refused) {
                    System.out.println(((ConnectionThrottledException) refused.getCause()).throttleTimeMs);
                }
            }
        }
    }
}
"""
START_MS = 1_700_000_000_000
UNLIMITED = 2**31 - 1


def steps(seed: int) -> list[str]:
    """Connections and changes of limits as they may come: bursts, pauses, several addresses."""
    chance = random.Random(seed)
    now_ms = START_MS
    lines = [f"limit {now_ms} - 3", f"limit {now_ms} 10.0.0.1 7"]
    for _ in range(2500):
        now_ms += (
            chance.choice((0, 0, 0, 1, 5, 20, 40, 99, 250)) if chance.random() < 0.99 else chance.choice((1000, 15_000))
        )
        kind = chance.random()
        if kind < 0.01:
            ip = chance.choice(("-", "10.0.0.1", "10.0.0.2"))
            lines.append(f"limit {now_ms} {ip} {chance.choice(('-', '1', '4', '20'))}")
        elif kind < 0.35:
            lines.append(f"listener {now_ms}")
        else:
            lines.append(f"ip {now_ms} {chance.choice(('10.0.0.1', '10.0.0.2', '10.0.0.3', '::1'))}")
    return lines


def ours(lines: list[str], window: QuotaWindow, broker_rate: int, listener_rate: int) -> list[int]:
    limits: dict[str, float] = {}
    chosen = ConnectionQuotas(window, broker_rate=broker_rate)
    rates = chosen.broker(1)
    delays = []
    for kind, at, *rest in map(str.split, lines):
        now_ms = int(at)
        if kind == "limit":
            ip, limit = rest
            limits.pop(ip, None)
            if limit != "-":
                limits[ip] = float(limit)
            chosen.apply(
                QuotaEntry(
                    entity=Entity.of(ip=None if each == "-" else each), quotas={"connection_creation_rate": value}
                )
                for each, value in limits.items()
            )
        elif kind == "listener":
            delays.append(rates.listener_delay_ms("plaintext", listener_rate, now_ms))
        else:
            delays.append(rates.record_ip(rest[0], 1, now_ms))
            if delays[-1]:
                rates.take_back("plaintext", now_ms)
    return delays


@pytest.mark.parametrize(("samples", "window_s", "broker_rate", "listener_rate"), [(11, 1, 9, 5), (3, 2, 5, UNLIMITED)])
def test_every_delay_is_kafkas(
    tmp_path: Path, samples: int, window_s: int, broker_rate: int, listener_rate: int
) -> None:
    lines = steps(samples)
    program = tmp_path / "Connections.java"
    program.write_text(PROGRAM, encoding="utf-8")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(KAFKA_4)}/*", str(program)]
    done = subprocess.run(
        [*command, str(samples), str(window_s), str(broker_rate), str(listener_rate)],
        input="\n".join([str(START_MS), *lines]) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    mine = ours(lines, QuotaWindow(samples=samples, window_s=window_s), broker_rate, listener_rate)
    assert len(mine) == len(theirs)
    asked = [line for line in lines if not line.startswith("limit")]
    differing = [(line, our, their) for line, our, their in zip(asked, mine, theirs, strict=True) if our != their]
    assert differing == []
    assert sum(map(bool, theirs)) > 100, "many were over"

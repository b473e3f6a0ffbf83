"""Calibrating against a broker that keeps Kafka's accounts on a virtual clock: the costs come out as they went in."""

from collections.abc import Sequence

import pytest

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import ApiCost
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.quotas.calibration import (
    Calibration,
    MeasuredProbe,
    SendProbe,
    budget_percentage,
    fitted,
    nanos_per_request,
)
from kafka_quotas.wire.client.probes import CostProbe, ProbeAnswer

PRODUCE, FETCH, HEARTBEAT = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT
COSTS = {
    PRODUCE: ApiCost(request_nanos=400_000, request_byte_nanos=5.0),
    FETCH: ApiCost(request_nanos=150_000, response_byte_nanos=0.5),
    HEARTBEAT: ApiCost(request_nanos=60_000),
}
OTHER = ApiCost(request_nanos=200_000)


class Broker:
    """Times requests as Kafka does, and tells the throttle time."""

    def __init__(self, window: QuotaWindow, *, enforces: bool = True, round_trip_s: float = 0.0005) -> None:
        self.now_s = 1000.0
        self.manager = ClientQuotaManager(QuotaType.REQUEST, window)
        self.percentage = budget_percentage(window)
        self.enforces = enforces
        self.round_trip_s = round_trip_s
        self.clients: set[str] = set()

    def asking(self, client_id: str) -> SendProbe:
        self.clients.add(client_id)

        def ask(probe: CostProbe) -> ProbeAnswer:
            self.now_s += self.round_trip_s
            cost = COSTS.get(probe.api_key, OTHER)
            is_full_fetch = probe.api_key == FETCH and probe.body[-10:-6] == (512 * 1024).to_bytes(4, "big")
            size = 512 * 1024 if is_full_fetch else 100
            now_ms = int(self.now_s * 1000)
            io = nanos_to_percentage(cost.request_nanos + cost.request_byte_nanos * len(probe.body))
            throttle_ms = self.manager.record_and_throttle_ms("u", client_id, io, now_ms)
            network = nanos_to_percentage(cost.response_byte_nanos * size)
            self.manager.record_without_throttle("u", client_id, network, now_ms)
            return ProbeAnswer(throttle_ms if self.enforces else 0, size)

        return ask

    def limit(self, entities: Sequence[Entity]) -> None:
        for entity in entities:
            self.manager.limits.update(entity, self.percentage)

    def clock_s(self) -> float:
        self.now_s += 0.00001
        return self.now_s


def calibration(broker: Broker, window: QuotaWindow, told: list[MeasuredProbe]) -> Calibration:
    return Calibration(
        broker, window=window, batch=bytes, now_s=broker.clock_s, on_progress=told.append, warm_up_s=0.01
    )


@pytest.mark.parametrize(
    "window", [QuotaWindow(), QuotaWindow(samples=3, window_s=1), QuotaWindow(samples=2, window_s=5)]
)
def test_costs_come_out_as_they_went_in(window: QuotaWindow) -> None:
    broker = Broker(window)
    told: list[MeasuredProbe] = []
    model = calibration(broker, window, told).run("scratch", source="a test")
    for api_key, cost in COSTS.items():
        found = model.apis[api_key]
        assert found.request_nanos == pytest.approx(cost.request_nanos, rel=0.03)
        assert found.request_byte_nanos == pytest.approx(cost.request_byte_nanos, rel=0.03)
        assert found.response_byte_nanos == pytest.approx(cost.response_byte_nanos, rel=0.03)
    assert model.other.request_nanos == pytest.approx(OTHER.request_nanos, rel=0.03)
    assert model.source == "a test"
    assert {progress.name for progress in told} >= {"Produce", "Fetch", "Heartbeat", "JoinGroup", "Metadata"}
    assert all(client.startswith("kafka-quotas-calibrate-") for client in broker.clients)


def test_a_broker_that_never_throttles_is_told_of() -> None:
    window = QuotaWindow()
    with pytest.raises(KafkaQuotasError, match="the broker throttled no request"):
        calibration(Broker(window, enforces=False, round_trip_s=0.02), window, []).run("scratch", source="a test")


def test_the_throttle_time_tells_how_far_the_last_request_went_over() -> None:
    window = QuotaWindow()  # the budget is 20 ms within 10 s
    exact = nanos_per_request(window, requests=20, elapsed_ms=0, throttle_ms=0)
    assert exact == pytest.approx(1e6)
    assert nanos_per_request(window, requests=20, elapsed_ms=0, throttle_ms=1000) == pytest.approx(1.1e6)
    assert nanos_per_request(window, requests=20, elapsed_ms=500, throttle_ms=0) == pytest.approx(1.05e6)
    assert nanos_per_request(window, requests=20, elapsed_ms=20_000, throttle_ms=0) == pytest.approx(2e6)


def test_no_cost_is_below_nothing() -> None:
    assert fitted((MeasuredProbe(9e5, 1000, 80), MeasuredProbe(8e5, 500_000, 80))) == ApiCost(request_nanos=9e5)
    assert fitted((MeasuredProbe(1e3, 1000, 80), MeasuredProbe(8e8, 2000, 80))).request_nanos == 0

"""The librdkafka properties of one client of a run: the load test's own, and over them the user's.

Invariant: the load test replaces no property that the user gives.
"""

from kafka_quotas.loadtest.plan.plan import LARGEST_REQUEST, ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

STATISTICS_INTERVAL_MS = 500
_NAMELESS = "kafka-quotas-load-test"  # librdkafka always sends a client-id, even for a raw client without one

# A throttling broker responds at once but delays its next read, so a request may wait for the whole throttle time.
# librdkafka's default of 30 s would close the connection and resend the same records (the problem in KIP-219).
_PATIENT_MS = 300_000
_LEAST_MESSAGE = 1000  # bytes that librdkafka takes for message.max.bytes
_PACED_PREFETCH_S = 0.25  # a paced consumer fetches no further ahead, or it would exceed its rate at the broker


def client_properties(plan: LoadPlan, entity: ClientLoad) -> dict[str, object]:
    """Return the properties of a client's producer or consumer, without callbacks."""
    own = _producer(entity) if entity.workload is Workload.PRODUCE else _consumer(entity)
    return {
        "bootstrap.servers": entity.bootstrap or plan.bootstrap,
        "client.id": entity.name.client_id,
        "socket.timeout.ms": _PATIENT_MS,
        "statistics.interval.ms": STATISTICS_INTERVAL_MS,
        "log_level": 0,  # errors arrive through error_cb; librdkafka's own log lines would break the live view
        **own,
        **plan.properties_of(entity),
    }


def probe_properties(plan: LoadPlan, entity: ClientLoad) -> dict[str, object]:
    """Return the properties of a short-lived client that checks the cluster before the load."""
    properties = plan.properties_of(entity).items()
    security = {key: value for key, value in properties if key.startswith(("security.", "sasl.", "ssl.", "enable.ssl"))}
    client_id = _NAMELESS if entity.name.client_id is None else entity.name.client_id
    return {"bootstrap.servers": plan.bootstrap, "client.id": client_id, "log_level": 0, **security}


def _producer(entity: ClientLoad) -> dict[str, object]:
    return {
        "acks": entity.acks,
        "batch.size": max(entity.request_bytes, entity.record_size + 100),
        "compression.type": entity.compression,
        "max.in.flight.requests.per.connection": entity.in_flight,
        "request.timeout.ms": _PATIENT_MS,
        "message.timeout.ms": _PATIENT_MS,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }


def _consumer(entity: ClientLoad) -> dict[str, object]:
    prefetched = 64 << 20
    if entity.arrivals_per_second is not None:
        ahead = int(float(entity.arrivals_per_second) * entity.record_size * _PACED_PREFETCH_S)
        prefetched = max(ahead, LARGEST_REQUEST)
    return {
        "group.id": f"kafka-quotas-load-test-{entity.group or entity.name.client_id}",  # nothing is ever committed
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": entity.request_bytes,
        "fetch.max.bytes": max(entity.request_bytes, _LEAST_MESSAGE),  # of all partitions together
        "message.max.bytes": max(entity.request_bytes, _LEAST_MESSAGE),  # librdkafka fetches no less
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 10,  # librdkafka pauses for 1 s where its queue is full for a moment
        "queued.max.messages.kbytes": prefetched // 1024,
    }

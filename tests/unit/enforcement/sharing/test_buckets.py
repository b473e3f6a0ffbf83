"""Every quota type of a daemon is offered to its fleet, under numbers that are the same at every member."""

import gc
import weakref

from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.frames.enforcement import set_limit

from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, ThresholdSettings
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.quotas.topic_thresholds import IDLE_MS
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.sharing.buckets import DaemonBuckets, MeterBucket, SharedBucket

NOW_MS = 1_000_000
WINDOW = QuotaWindow()


def used_everywhere() -> ProxyQuotas:
    made = proxy_quotas(
        {Entity.of(ip="192.0.2.7"): {CONNECTION_CREATION_RATE.name: 5.0}},
        clock=VirtualClock(NOW_MS),
        window=WINDOW,
        broker_rate=10.0,
    )
    quotas, connections, thresholds = made.registry, made.connections, made.topics.thresholds
    for quota_type in QuotaType:
        set_limit(quotas.broker(7), quota_type, Entity.of(client_id="app"), 100.0)
        quotas.broker(7).manager(quota_type).record_without_throttle("alice", "app", 50.0, NOW_MS)
        quotas.cluster.manager(quota_type).record_without_throttle("alice", "app", 50.0, NOW_MS)
        quotas.broker(None).manager(quota_type).record_without_throttle("alice", "app", 50.0, NOW_MS)
    rates = connections.broker(7)
    rates.listener_delay_ms("outside", 3.0, NOW_MS)
    rates.record_ip("192.0.2.7", 1.0, NOW_MS)
    thresholds.apply_file(ThresholdSettings(topics={"orders": 1000.0}, totals={None: 5000.0}))
    thresholds.broker(7).topics.record("orders", 100.0, NOW_MS)
    return made


def offered(now_ms: int = NOW_MS) -> dict[int, SharedBucket]:
    return dict(DaemonBuckets(used_everywhere()).used(now_ms))


def test_every_quota_type_is_offered_once_per_broker_and_for_the_cluster() -> None:
    # Each type at broker 7 and over all brokers, rates of broker, listener and address, a topic's meter and the total.
    assert len(offered()) == 2 * len(QuotaType) + 3 + 2


def test_buckets_of_a_broker_whose_node_id_is_not_known_are_counted() -> None:
    buckets = DaemonBuckets(used_everywhere())
    for now_ms, expected in ((NOW_MS, len(QuotaType)), (NOW_MS + 60_000, 0)):
        for _ in range(64):  # each looks at some of the pool
            list(buckets.used(now_ms))
        assert buckets.unnamed == expected


def test_nothing_is_kept_of_topics_that_their_broker_has_forgotten() -> None:
    """Clients make names of topics up."""
    made = used_everywhere()
    buckets, topics = DaemonBuckets(made), made.topics.thresholds.broker(7).topics
    meters = [weakref.ref(each) for _, each in buckets.used(NOW_MS) if isinstance(each, MeterBucket)]
    later_ms = NOW_MS + IDLE_MS + 1
    topics.record("new", 100.0, later_ms)
    list(buckets.used(later_ms))
    gc.collect()
    assert [meter() is None for meter in meters] == [False, True], "that of all topics together stays"


def test_numbers_are_the_same_at_every_member() -> None:
    assert offered().keys() == offered().keys()


def test_buckets_that_rest_are_not_looked_at() -> None:
    assert len(offered(NOW_MS + 60_000)) == 2  # meters, which are few


def test_what_others_use_is_recorded_in_every_kind() -> None:
    for bucket in offered().values():
        before = bucket.total
        bucket.record(10.0, NOW_MS)
        if isinstance(bucket, ShareableRate):
            bucket.record_past(10.0, NOW_MS - 1000, NOW_MS, NOW_MS)
        else:
            bucket.record(10.0, NOW_MS)
        bucket.reserve(1.0)
        assert bucket.total == before + 20.0
        assert bucket.capacity > 0


def test_a_rate_of_connections_holds_back_what_is_reserved() -> None:
    rates = ConnectionQuotas(WINDOW).broker(7)
    rates.listener_delay_ms("outside", 1.0, NOW_MS)
    (rate,) = (each for each in rates.rates.values() if each.limit is not None)
    assert rate.capacity == 10.0
    rate.reserve(8.0)
    assert rates.listener_delay_ms("outside", 1.0, NOW_MS) == 0
    assert rates.listener_delay_ms("outside", 1.0, NOW_MS) == 1000

"""The limits of one broker in the buckets of every mode."""

from tests.support.frames.enforcement import CLIENT_ID, START_MS, WINDOW

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas

APP = Entity.of(client_id=CLIENT_ID)


def test_brokers_have_buckets_for_each_mode_and_every_limit_is_in_all_of_them() -> None:
    quotas = BrokerQuotas(WINDOW)
    quotas.update(QuotaType.PRODUCE, APP, 5.0, static=False)
    smooth = quotas.manager(QuotaType.PRODUCE, Mode.SMOOTH).limits
    assert smooth.limit(smooth.bucket("u", CLIENT_ID)) == 5.0
    quotas.update(QuotaType.PRODUCE, APP, 6.0, static=False)
    for mode in (Mode.KAFKA, Mode.SMOOTH):
        limits = quotas.manager(QuotaType.PRODUCE, mode).limits
        assert limits.limit(limits.bucket("u", CLIENT_ID)) == 6.0
    quotas.client("u", CLIENT_ID).produce.record(1, START_MS)
    assert [(mode, state.bound) for mode, state in quotas.buckets(QuotaType.PRODUCE, START_MS)] == [(Mode.KAFKA, 6.0)]

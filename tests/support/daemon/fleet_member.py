"""A member of a fleet with one bucket, without a daemon around it."""

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm
from kafka_quotas.enforcement.config.address import parse_topic
from kafka_quotas.enforcement.config.settings import Fallback, FleetSettings
from kafka_quotas.enforcement.sharing.fleet import Sharing
from kafka_quotas.enforcement.telemetry.log import LogEvent

LIMIT = 1_000_000.0
WINDOW = QuotaWindow()


class FleetMember:
    """A member with its quota manager, the limit of `app`, and its log."""

    def __init__(
        self,
        number: int,
        *secrets: bytes,
        now_ms: int = 0,
        topic: str = "fleet",
        fleet: str = "production",
        fallback: Fallback = Fallback.SHARE,
        window: QuotaWindow = WINDOW,
        quota_type: QuotaType = QuotaType.PRODUCE,
        algorithm: RateAlgorithm = RateAlgorithm.WINDOW,
    ) -> None:
        self.secrets = secrets
        self.events: list[LogEvent] = []
        self.pool = BucketPool()
        self.manager = ClientQuotaManager(quota_type, WINDOW, algorithm, pool=self.pool)
        self.manager.limits.update(Entity.of(client_id="app"), LIMIT)
        self.sharing = Sharing(
            number,
            FleetSettings(target=parse_topic(f"kafka://broker:9092/{topic}"), name=fleet, fallback=fallback),
            now_ms,
            name=f"member-{number}",
            windows=(window, WINDOW),
            notify=self.events.append,
            secrets=lambda: self.secrets,
        )

    @property
    def bucket(self) -> QuotaBucket:
        bucket, _ = self.manager.resolve("ANONYMOUS", "app")
        assert bucket is not None
        return bucket

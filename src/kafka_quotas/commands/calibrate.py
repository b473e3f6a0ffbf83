"""`daemon calibrate` as a function: what requests cost a broker, written to a file that the daemon reads."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_quotas.core.cost_model import CostModel
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import KafkaQuotasError, StoreError
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.enforcement.calibration import ROUNDS, WARM_UP_S, Ask, Calibration, Progress
from kafka_quotas.enforcement.cost_file import write_cost_model
from kafka_quotas.enforcement.cost_fit import budget_percentage
from kafka_quotas.stores.kafka import KafkaStore
from kafka_quotas.stores.kafka_cluster import KafkaCluster
from kafka_quotas.stores.kafka_connection import KafkaConnection
from kafka_quotas.stores.kafka_peer import KafkaPeer
from kafka_quotas.stores.kafka_properties import kafka_access
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.server_address import ServerAddress
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Alteration
from kafka_quotas.stores.store_url import parse_store_url
from kafka_quotas.wire.cost_probe import CostProbe, ProbeAnswer
from kafka_quotas.wire.error_names import error_name
from kafka_quotas.wire.metadata import MetadataRequest
from kafka_quotas.wire.single_record import single_record_batch
from kafka_quotas.wire.topic_changes import CreateTopics, DeleteTopics, WantedTopic

LEADER_WAIT_S: Final = 30.0
_TOPIC_TIMEOUT_MS: Final = 30_000
ANSWER_S: Final = 30.0
"""How long one answer may take."""


def calibrate(
    bootstrap: str,
    settings: StoreSettings,
    *,
    window: QuotaWindow,
    target: Path,
    on_progress: Callable[[Progress], None],
    rounds: int = ROUNDS,
    warm_up_s: float = WARM_UP_S,
) -> CostModel:
    """The cost model of the broker that leads a scratch topic, written to the target file.

    Each request is tried for `warm_up_s` and then measured in so many rounds, the least of which counts.

    Raises `StoreError` where the cluster can't be asked or changed, `KafkaQuotasError` where the broker never throttles
    or the file can't be written.
    """
    url = f"kafka://{bootstrap}"
    with ExitStack() as stack:
        connection = stack.enter_context(_connected(url, settings))
        topic = stack.enter_context(_scratch_topic(connection, settings, url))
        upstream = _Upstream(connection, settings, url, topic, window)
        stack.callback(upstream.close)
        calibration = Calibration(
            upstream,
            window=window,
            batch=_batch,
            now_s=time.monotonic,
            on_progress=on_progress,
            rounds=rounds,
            warm_up_s=warm_up_s,
        )
        model = calibration.run(topic, source=f"calibrated with {upstream.server}, {time.strftime('%Y-%m-%d')}")
    write_cost_model(target, model)
    return model


@contextmanager
def _connected(url: str, settings: StoreSettings) -> Iterator[KafkaConnection]:
    connection = KafkaConnection(parse_store_url(url), settings=settings)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _scratch_topic(connection: KafkaConnection, settings: StoreSettings, url: str) -> Iterator[str]:
    """A topic that has a leader, deleted at the end. Raises `StoreError` where it can't be made."""
    topic = f"kafka-quotas-calibrate-{uuid.uuid4().hex[:12]}"
    connection.node_ids()
    controller = connection.send(MetadataRequest()).controller_id
    wanted = WantedTopic(name=topic, partitions=1, replication_factor=-1)
    (made,) = connection.send(CreateTopics(topics=[wanted], timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller)
    if made.error_code:
        raise StoreError(
            f"can't make the topic {topic}: {error_name(made.error_code)}", hint="calibrating needs a scratch topic"
        )
    try:
        cluster = KafkaCluster(parse_store_url(url), settings=settings)
        try:
            if not Polling(0.1).until(lambda: bool(_leaders(cluster, topic)), timeout_s=LEADER_WAIT_S):
                raise StoreError(f"the topic {topic} got no leader within {LEADER_WAIT_S:g} s")
        finally:
            cluster.close()
        yield topic
    finally:
        connection.send(DeleteTopics(topics=[topic], timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller)


def _leaders(cluster: KafkaCluster, topic: str) -> bool:
    try:
        return bool(cluster.leaders(topic))
    except StoreError:
        return False  # not known everywhere yet


class _Upstream:
    """The broker that leads the scratch topic."""

    def __init__(
        self, connection: KafkaConnection, settings: StoreSettings, url: str, topic: str, window: QuotaWindow
    ) -> None:
        metadata = connection.send(MetadataRequest(topics=(topic,)))
        leader = metadata.topics[0].partitions[0].leader_id
        broker = next(broker for broker in metadata.brokers if broker.node_id == leader)
        self._address = ServerAddress(broker.host, broker.port)
        self.server = str(self._address)
        self._url = url
        self._access = kafka_access(settings.client_properties)
        self._store = KafkaStore(parse_store_url(url), settings=settings)
        self._percentage = budget_percentage(window)
        self._limited: list[Entity] = []
        self._peers: list[KafkaPeer] = []

    def asking(self, client_id: str) -> Ask:
        """What sends probes under a client-id. Raises `StoreError` where the broker does not answer one."""
        peer = KafkaPeer(self._address, access=replace(self._access, client_id=client_id), url=self._url)
        self._peers.append(peer)

        def ask(probe: CostProbe) -> ProbeAnswer:
            deadline_s = time.monotonic() + ANSWER_S
            try:
                return peer.ask(probe, contact_deadline_s=deadline_s, deadline_s=deadline_s)
            except OSError as error:
                raise StoreError(f"{self.server} did not answer {probe.name}: {error}") from error

        return ask

    def limit(self, entities: Sequence[Entity]) -> None:
        """Nothing; each of these may take the budget. Raises `StoreError` where the cluster refuses the quotas."""
        self._limited += entities
        self._set({REQUEST_PERCENTAGE.name: self._percentage})

    def close(self) -> None:
        """Nothing; connections and quotas are gone."""
        for peer in self._peers:
            peer.close()
        try:
            if self._limited:
                self._set({REQUEST_PERCENTAGE.name: None})
        finally:
            self._store.close()

    def _set(self, changes: dict[str, float | None]) -> None:
        results = self._store.alter([Alteration(entity=entity, changes=changes) for entity in self._limited])
        for result in results:
            if result.error is not None:
                raise KafkaQuotasError(f"the quotas for calibrating can't be changed: {result.error.message}")


def _batch(size: int) -> bytes:
    """Return a record batch with one record of about so many bytes."""
    return single_record_batch(bytes(size), now_ms=time.time_ns() // 1_000_000)

"""`daemon calibrate`: the cost model of a broker, measured with a scratch topic and quotas that go again."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, StoreError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import CostModel
from kafka_quotas.enforcement import (
    ROUNDS,
    WARM_UP_S,
    Calibration,
    MeasuredProbe,
    SendProbe,
    budget_percentage,
    write_cost_model,
)
from kafka_quotas.stores import (
    Alteration,
    BrokerClient,
    ClusterClient,
    KafkaStore,
    Polling,
    ServerAddress,
    StoreSettings,
    kafka_access,
    parse_store_url,
)
from kafka_quotas.wire import (
    CostProbe,
    CreateTopics,
    DeleteTopics,
    MetadataRequest,
    NewTopic,
    ProbeAnswer,
    error_name,
    single_record_batch,
)

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
    on_progress: Callable[[MeasuredProbe], None],
    rounds: int = ROUNDS,
    warm_up_s: float = WARM_UP_S,
) -> CostModel:
    """Measure the cost model of the broker that leads a scratch topic and write it to the target file.

    Each request runs for `warm_up_s` and then in N measured rounds, of which the lowest result counts.

    Raises:
        StoreError: The cluster can't be read or changed.
        KafkaQuotasError: The broker never throttles, or the file can't be written.
    """
    url = f"kafka://{bootstrap}"
    with ExitStack() as stack:
        connection = stack.enter_context(closing(ClusterClient(parse_store_url(url), settings=settings)))
        topic = stack.enter_context(_scratch_topic(connection))
        upstream = _Upstream(connection, settings, url, topic, window)
        stack.callback(upstream.close)
        calibration = Calibration(
            upstream,
            window=window,
            batch=lambda size: single_record_batch(bytes(size), now_ms=time.time_ns() // 1_000_000),
            now_s=time.monotonic,
            on_progress=on_progress,
            rounds=rounds,
            warm_up_s=warm_up_s,
        )
        model = calibration.run(topic, source=f"calibrated with {upstream.server}, {time.strftime('%Y-%m-%d')}")
    write_cost_model(target, model)
    return model


@contextmanager
def _scratch_topic(connection: ClusterClient) -> Iterator[str]:
    """Yield a topic that has a leader, and delete it at the end."""
    topic = f"kafka-quotas-calibrate-{uuid.uuid4().hex[:12]}"
    controller = connection.controller_id()
    scratch = [NewTopic(topic, 1)]
    (made,) = connection.send(CreateTopics(topics=scratch, timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller).topics
    if made.error_code:
        raise StoreError(
            f"can't make the topic {topic}: {error_name(made.error_code)}", hint="calibrating needs a scratch topic"
        )
    try:
        if not Polling(0.1).until(lambda: _is_led(connection, topic), timeout_s=LEADER_WAIT_S):
            raise StoreError(f"the topic {topic} got no leader within {LEADER_WAIT_S:g} s")
        yield topic
    finally:
        connection.send(DeleteTopics(topics=scratch, timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller)


def _is_led(connection: ClusterClient, topic: str) -> bool:
    try:
        return bool(connection.leaders(topic))
    except StoreError:
        return False  # not known everywhere yet


class _Upstream:
    """The broker that leads the scratch topic."""

    def __init__(
        self, connection: ClusterClient, settings: StoreSettings, url: str, topic: str, window: QuotaWindow
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
        self._peers: list[BrokerClient] = []

    def asking(self, client_id: str) -> SendProbe:
        """Return a function that sends probes under a client-id, and raises a `StoreError` without an answer."""
        peer = BrokerClient(self._address, access=replace(self._access, client_id=client_id), url=self._url)
        self._peers.append(peer)

        def ask(probe: CostProbe) -> ProbeAnswer:
            deadline_s = time.monotonic() + ANSWER_S
            try:
                return peer.ask(probe, contact_deadline_s=deadline_s, deadline_s=deadline_s)
            except OSError as error:
                raise StoreError(f"{self.server} did not answer {probe.name}: {error}") from error

        return ask

    def limit(self, entities: Sequence[Entity]) -> None:
        """Set the budget as request quota of each of these entities."""
        self._limited += entities
        self._set({REQUEST_PERCENTAGE.name: self._percentage})

    def close(self) -> None:
        """Close the connections and remove the quotas."""
        with ExitStack() as stack:  # whichever of these fails, the others happen
            stack.callback(self._store.close)
            for peer in self._peers:
                stack.callback(peer.close)
            if self._limited:
                self._set({REQUEST_PERCENTAGE.name: None})

    def _set(self, changes: dict[str, float | None]) -> None:
        results = self._store.alter([Alteration(entity=entity, changes=changes) for entity in self._limited])
        for result in results:
            if result.error is not None:
                raise KafkaQuotasError(f"the quotas for calibrating can't be changed: {result.error.message}")

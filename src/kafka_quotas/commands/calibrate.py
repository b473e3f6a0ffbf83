"""`daemon calibrate`: the cost model of a broker, measured with a scratch topic and quotas that go again."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_quotas import enforcement, stores, wire
from kafka_quotas.core.errors import KafkaQuotasError, StoreError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import CostModel

LEADER_WAIT_S: Final = 30.0
_TOPIC_TIMEOUT_MS: Final = 30_000
ANSWER_S: Final = 30.0
"""How long one answer may take."""


def calibrate(
    bootstrap: str,
    settings: stores.StoreSettings,
    *,
    window: QuotaWindow,
    target: Path,
    on_progress: Callable[[enforcement.MeasuredProbe], None],
    rounds: int = enforcement.ROUNDS,
    warm_up_s: float = enforcement.WARM_UP_S,
) -> CostModel:
    """Measure the cost model of the broker that leads a scratch topic and write it to the target file.

    Each request runs for `warm_up_s` and then in N measured rounds, of which the lowest result counts.
    """
    url = f"kafka://{bootstrap}"
    with ExitStack() as stack:
        store = stack.enter_context(closing(stores.KafkaStore(stores.parse_store_url(url), settings=settings)))
        topic = stack.enter_context(_scratch_topic(store.cluster))
        upstream = _Upstream(store, settings, topic, window)
        stack.callback(upstream.close)
        calibration = enforcement.Calibration(
            upstream,
            window=window,
            batch=lambda size: wire.single_record_batch(bytes(size), now_ms=time.time_ns() // 1_000_000),
            now_s=time.monotonic,
            on_progress=on_progress,
            rounds=rounds,
            warm_up_s=warm_up_s,
        )
        model = calibration.run(topic, source=f"calibrated with {upstream.server}, {time.strftime('%Y-%m-%d')}")
    enforcement.write_cost_model(target, model)
    return model


@contextmanager
def _scratch_topic(connection: stores.ClusterClient) -> Iterator[str]:
    topic = f"kafka-quotas-calibrate-{uuid.uuid4().hex[:12]}"
    controller = connection.controller_id()
    scratch = [wire.NewTopic(topic, 1)]
    (made,) = connection.send(
        wire.CreateTopics(topics=scratch, timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller
    ).topics
    if made.error_code:
        raise StoreError(
            f"can't make the topic {topic}: {wire.error_name(made.error_code)}",
            hint="calibrating needs a scratch topic",
        )
    try:
        if not stores.Polling(0.1).until(lambda: _is_led(connection, topic), timeout_s=LEADER_WAIT_S):
            raise StoreError(f"the topic {topic} got no leader within {LEADER_WAIT_S:g} s")
        yield topic
    finally:
        connection.send(wire.DeleteTopics(topics=scratch, timeout_ms=_TOPIC_TIMEOUT_MS), node_id=controller)


def _is_led(connection: stores.ClusterClient, topic: str) -> bool:
    try:
        return bool(connection.leaders(topic))
    except StoreError:
        return False  # not known everywhere yet


class _Upstream:
    def __init__(
        self, store: stores.KafkaStore, settings: stores.StoreSettings, topic: str, window: QuotaWindow
    ) -> None:
        metadata = store.cluster.send(wire.MetadataRequest(topics=(topic,)))
        leader = metadata.topics[0].partitions[0].leader_id
        broker = next(broker for broker in metadata.brokers if broker.node_id == leader)
        self._address = stores.ServerAddress(broker.host, broker.port)
        self.server = str(self._address)
        self._access = stores.kafka_access(settings.client_properties)
        self._store = store
        self._percentage = enforcement.budget_percentage(window)
        self._limited: list[Entity] = []
        self._peers: list[stores.BrokerClient] = []

    def asking(self, client_id: str) -> enforcement.SendProbe:
        """Return a function that sends probes under a client-id, and raises a `StoreError` without an answer."""
        peer = stores.BrokerClient(
            self._address, access=replace(self._access, client_id=client_id), url=self._store.url
        )
        self._peers.append(peer)

        def ask(probe: wire.CostProbe) -> wire.ProbeAnswer:
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
            for peer in self._peers:
                stack.callback(peer.close)
            if self._limited:
                self._set({REQUEST_PERCENTAGE.name: None})

    def _set(self, changes: dict[str, float | None]) -> None:
        results = self._store.alter([stores.Alteration(entity=entity, changes=changes) for entity in self._limited])
        for result in results:
            if result.error is not None:
                raise KafkaQuotasError(f"the quotas for calibrating can't be changed: {result.error.message}")

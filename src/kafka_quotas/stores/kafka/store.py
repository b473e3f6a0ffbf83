"""The Kafka store: quotas in the cluster itself, through the admin protocol of any broker (2.6 and later).

Contract: our refusals come first, then the broker validates. All alterations of one entity are merged into one entry,
every entity has its own result, and accepted changes are read back until every broker shows them, or else the result
has a `NotVisibleError`: a KRaft broker answers from its own copy, which follows the controller. The user needs the ACLs
DescribeConfigs and AlterConfigs on the cluster. Kafka has no notification of changes, so a watch reads all quotas every
half second.

`KafkaRawQuotas`, for `kafka-configs`, sends each change once and unchanged: it checks nothing, merges nothing and reads
nothing back. The brokers decide, and their error names and texts are passed on as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from kafka_quotas.core.changes.plan import Content, fingerprint
from kafka_quotas.core.errors import (
    KafkaQuotasError,
    NotVisibleError,
    StoreError,
    StoreRefusedError,
    StoreUnreachableError,
    UnconfirmedError,
)
from kafka_quotas.core.formats.zookeeper import WHOLE_NUMBER_TOLERANCE
from kafka_quotas.core.model.entity import EVERYTHING, Entity, QuotaFilter, entity_filter
from kafka_quotas.stores.address import StoreKind, StoreSettings, StoreUrl, timeouts
from kafka_quotas.stores.kafka.broker_client import BrokerRefusedError, LostAnswerError
from kafka_quotas.stores.kafka.cluster_client import (
    ALTER_ACL,
    DESCRIBE_ACL,
    ClusterClient,
    ask_each,
    cluster_info,
    old_brokers,
)
from kafka_quotas.stores.store import Alteration, BrokerAnswerError, ClusterInfo, Polling, QuotaEntry, Snapshot, Store
from kafka_quotas.wire.client.admin import (
    AlterQuotasRequest,
    DescribedQuotas,
    DescribeQuotasRequest,
    EntityChanges,
    MetadataRequest,
)
from kafka_quotas.wire.client.request import ClientRequest
from kafka_quotas.wire.protocol.api_table import error_name

LARGEST_REQUEST: Final = 10_000
"""Changes in one request, as a KRaft controller refuses more records in one batch (`POLICY_VIOLATION`)."""


def described_entries(answer: DescribedQuotas) -> list[QuotaEntry]:
    """Return the entries of an answer without error, sorted by entity."""
    entries = [QuotaEntry(entity, dict(sorted(quotas.items()))) for entity, quotas in answer.entries if quotas]
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def request_batches(alterations: Sequence[Alteration]) -> Iterator[list[Alteration]]:
    """Yield the alterations in order, in batches of one or of at most `LARGEST_REQUEST` changes."""
    batch: list[Alteration] = []
    changes = 0
    for alteration in alterations:
        if batch and changes + len(alteration.changes) > LARGEST_REQUEST:
            yield batch
            batch, changes = [], 0
        batch.append(alteration)
        changes += len(alteration.changes)
    if batch:
        yield batch


READ_BACK_INTERVAL_S: Final = 0.02
_FEW: Final = 10
"""Number of entities up to which each has its own request, as more are found by reading everything."""


def wait_until_visible(
    connection: ClusterClient, alterations: Sequence[Alteration], *, timeout_s: float
) -> tuple[frozenset[Entity], str | None]:
    """Wait until every broker that answers shows the alterations, at most `timeout_s` seconds.

    A broker that does not answer takes the alterations over when it returns. This never raises a `StoreError`, as the
    alterations were made.

    Returns:
        The entities that some broker did not show as altered in time, and why some could not be asked, if any.
    """
    if not alterations:
        return frozenset(), None
    try:
        node_ids = connection.node_ids()
    except StoreError as error:
        return frozenset(), error.message
    found = ask_each(node_ids, lambda node_id: _late_entities(connection, node_id, alterations, timeout_s=timeout_s))
    return frozenset().union(*found.answers.values()), found.missing


def _late_entities(
    connection: ClusterClient, node_id: int, alterations: Sequence[Alteration], *, timeout_s: float
) -> frozenset[Entity]:
    late = list(alterations)

    def caught_up() -> bool:
        stored = _stored(connection, node_id, late)
        late[:] = [alteration for alteration in late if not _shows(stored.get(alteration.entity, {}), alteration)]
        return not late

    Polling(READ_BACK_INTERVAL_S).until(caught_up, timeout_s=timeout_s)
    return frozenset(alteration.entity for alteration in late)


def _stored(connection: ClusterClient, node_id: int, alterations: Sequence[Alteration]) -> Content:
    few = len(alterations) <= _FEW
    filters = [entity_filter(alteration.entity) for alteration in alterations] if few else [EVERYTHING]
    requests = (DescribeQuotasRequest(quota_filter=quota_filter) for quota_filter in filters)
    answers = [connection.send_to(request, node_id=node_id) for request in requests]
    return dict(entry for answer in answers for entry in described_entries(answer))


def _shows(quotas: Mapping[str, float], alteration: Alteration) -> bool:
    for key, value in alteration.changes.items():
        stored = quotas.get(key)
        if value is None or stored is None:
            if value is not stored:
                return False
        # A broker in ZooKeeper mode stores a byte rate as the whole number that it is this close to.
        elif abs(stored - value) > WHOLE_NUMBER_TOLERANCE:
            return False
    return True


_DEFAULTS = StoreSettings()


class KafkaStore(Store):
    """Quotas in a Kafka cluster, connected at the first call."""

    kind = StoreKind.KAFKA
    interval_s = 0.5

    def __init__(
        self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS, polling: Polling | None = None
    ) -> None:
        super().__init__(str(address), polling=polling, allow_invalid=settings.allow_invalid)
        self._settings = settings
        self.cluster = ClusterClient(address, settings=settings)
        """The connections to the brokers."""
        self._timeout_s = timeouts(settings).call_s
        self._warned: set[str] = set()

    def cluster_info(self) -> ClusterInfo:
        return cluster_info(self.cluster)

    def cluster_id(self) -> str | None:
        return self.cluster.send(MetadataRequest()).cluster_id

    def old_brokers(self) -> tuple[str, ...]:
        return old_brokers(self.cluster)

    def _read(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        response = self.cluster.send(DescribeQuotasRequest(quota_filter=quota_filter))
        if response.error_code:
            raise self.cluster.error(response.error_code, response.error_message, missing_acl=DESCRIBE_ACL)
        return described_entries(response)

    def _write(self, accepted: Sequence[Alteration], *, validate_only: bool) -> list[KafkaQuotasError | None]:
        merged = _merged(accepted)
        outcomes = self._sent(merged, validate_only=validate_only)
        if self._settings.wait and not validate_only:
            done = [alteration for alteration in merged if outcomes[alteration.entity] is None]
            late, not_asked = wait_until_visible(self.cluster, done, timeout_s=self._timeout_s)
            not_visible = NotVisibleError(
                f"accepted, but not every broker of {self.url} shows it after {self._timeout_s:g} s",
                hint="describe it again; with --no-wait this is not checked",
            )
            outcomes |= dict.fromkeys(late, not_visible)
            if not_asked is not None and not_asked not in self._warned:
                self._warned.add(not_asked)
                self._settings.warn(f"not read back from every broker: {not_asked}; the controller has the change")
        return [outcomes[alteration.entity] for alteration in accepted]

    def _changed(self, since: str | None) -> Snapshot | None:
        entries = tuple(self.describe(EVERYTHING))
        revision = fingerprint(dict(entries))
        return None if revision == since else Snapshot(revision=revision, entries=entries)

    def _release(self) -> None:
        self.cluster.close()

    def _sent(self, alterations: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        """Send alterations, up to a lost connection, and return the error per entity, None for none."""
        outcomes: dict[Entity, KafkaQuotasError | None] = {}
        lost: KafkaQuotasError | None = None
        for batch in request_batches(alterations):
            if lost is None:
                try:
                    outcomes |= self._sent_batch(batch, validate_only=validate_only)
                    continue
                except LostAnswerError as error:
                    # The broker may have applied this batch, so it is unconfirmed, while later batches were not sent.
                    if validate_only:
                        raise
                    lost = StoreUnreachableError(error.message, hint=error.hint)
                    unconfirmed = UnconfirmedError(
                        f"not known whether it was changed: {error.message}",
                        hint="describe it once the brokers are back; the journal has the change as not confirmed",
                    )
                    outcomes |= dict.fromkeys((alteration.entity for alteration in batch), unconfirmed)
                    continue
                except KafkaQuotasError as error:
                    if not outcomes:
                        raise
                    lost = error
            outcomes |= dict.fromkeys((alteration.entity for alteration in batch), lost)
        return outcomes

    def _sent_batch(self, batch: Sequence[Alteration], *, validate_only: bool) -> dict[Entity, KafkaQuotasError | None]:
        entries = tuple(EntityChanges(each.entity, tuple(each.changes.items())) for each in batch)
        response = self.cluster.send(AlterQuotasRequest(entries=entries, validate_only=validate_only))
        silent = StoreError(f"{self.url} said nothing about this entity")
        errors: dict[Entity, KafkaQuotasError | None] = dict.fromkeys((each.entity for each in batch), silent)
        for entity, code, message in response:
            errors[entity] = self.cluster.error(code, message, missing_acl=ALTER_ACL) if code else None
        return errors


def _merged(alterations: Sequence[Alteration]) -> list[Alteration]:
    changes: dict[Entity, dict[str, float | None]] = {}
    for alteration in alterations:
        changes.setdefault(alteration.entity, {}).update(alteration.changes)
    return [Alteration(entity=entity, changes=merged) for entity, merged in changes.items()]


Answer = TypeVar("Answer")

_NO_LOGIN = "SASL_AUTHENTICATION_FAILED"
_SILENT = {"CLUSTER_AUTHORIZATION_FAILED": "Cluster authorization failed."}
"""The text of Kafka's own client for an error that the broker gives without one."""


class KafkaRawQuotas:
    """Quotas in a Kafka cluster without any rule of ours, whose calls may raise a `BrokerAnswerError`."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        self.url = str(address)
        self._connection = ClusterClient(address, settings=settings)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        response = self._answered(DescribeQuotasRequest(quota_filter=quota_filter))
        if response.error_code:
            raise self._answer(response.error_code, response.error_message, missing_acl=DESCRIBE_ACL)
        return described_entries(response)

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        """Set each key, or remove it for None, in this order and even twice."""
        request = AlterQuotasRequest(entries=(EntityChanges(entity, tuple(changes)),), validate_only=False)
        response = self._answered(request)
        for _, code, message in response:
            if code:
                raise self._answer(code, message, missing_acl=ALTER_ACL)

    def close(self) -> None:
        self._connection.close()

    def _answered(self, request: ClientRequest[Answer]) -> Answer:
        try:
            return self._connection.send(request)
        except StoreRefusedError as error:
            code = error.code if isinstance(error, BrokerRefusedError) else _NO_LOGIN
            raise BrokerAnswerError(error.message, code=code, hint=error.hint) from error

    def _answer(self, code: int, message: str | None, *, missing_acl: str) -> BrokerAnswerError:
        name = error_name(code)
        text = message or _SILENT.get(name, "The broker gave no reason.")
        hint = self._connection.error(code, message, missing_acl=missing_acl).hint
        return BrokerAnswerError(text, code=name, hint=hint)

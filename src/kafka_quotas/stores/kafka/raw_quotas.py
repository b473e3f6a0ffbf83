"""Quotas at brokers for `kafka-configs`, which sends each change once and unchanged.

Contract: unlike the Kafka store this checks nothing, merges nothing and reads nothing back. The brokers decide, and
their error names and texts are passed on as they are.
"""

from collections.abc import Sequence
from typing import TypeVar

from kafka_quotas.core.errors import StoreRefusedError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter
from kafka_quotas.stores.kafka.cluster_client import ALTER_ACL, DESCRIBE_ACL, ClusterClient
from kafka_quotas.stores.kafka.connection import BrokerRefusedError
from kafka_quotas.stores.kafka.messages import alter_outcomes, described_entries
from kafka_quotas.stores.raw_quotas import BrokerAnswerError
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import QuotaEntry
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.wire.client.client_quotas import AlterQuotasRequest, DescribeQuotasRequest, EntityChanges
from kafka_quotas.wire.client.request import ClientRequest
from kafka_quotas.wire.protocol.error_code import error_name

Answer = TypeVar("Answer")

_NO_LOGIN = "SASL_AUTHENTICATION_FAILED"
_SILENT = {"CLUSTER_AUTHORIZATION_FAILED": "Cluster authorization failed."}
"""The text of Kafka's own client for an error that the broker gives without one."""


class KafkaRawQuotas:
    """Quotas in a Kafka cluster without any rule of ours, connected at the first call."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        self.url = str(address)
        self._connection = ClusterClient(address, settings=settings)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        response = self._answered(DescribeQuotasRequest(quota_filter=quota_filter))
        if response.error_code:
            raise self._answer(response.error_code, response.error_message, missing_acl=DESCRIBE_ACL)
        return described_entries(response)

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        request = AlterQuotasRequest(entries=(EntityChanges(entity, tuple(changes)),), validate_only=False)
        response = self._answered(request)
        for code, message in alter_outcomes(response).values():
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

"""The brokers and the ZooKeeper that a `kafka-configs` command names, ready to be asked."""

import re
from pathlib import Path

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.kafka_configs.arguments import Action, KafkaConfigsCommand
from kafka_quotas.core.kafka_configs.failures import OURS, controllers_not_asked, unreadable_file
from kafka_quotas.core.kafka_configs.options import KafkaConfigsError
from kafka_quotas.stores.property_file import read_properties
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store_url import parse_store_url
from kafka_quotas.stores.verbatim import UserConfigs, VerbatimQuotas

DESCRIBE_TIMEOUT_S = 30.0
ALTER_TIMEOUT_S = 60.0
_SERVER = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?(\[?[0-9a-zA-Z\-%._:]*\]?:[0-9]+)", re.ASCII)
"""**Source:** `org.apache.kafka.common.utils.Utils.getHost` (4.3)."""


def open_brokers(command: KafkaConfigsCommand) -> VerbatimQuotas:
    """The brokers of `--bootstrap-server`, with the properties of `--command-config`; the caller closes them.

    Raises `KafkaConfigsError` for `--bootstrap-controller` and for an address that is no host:port, `UsageError` for
    properties that can't be read or meant.
    """
    from kafka_quotas.stores.kafka_verbatim import VerbatimKafka  # noqa: PLC0415 - only a Kafka store needs it

    servers = command.options.value("bootstrap-server")
    if servers is None:
        raise controllers_not_asked()
    address = ",".join(_server(server.strip()) for server in servers.split(",") if server.strip())
    if not address:
        raise KafkaConfigsError("--bootstrap-server is empty", error_class=OURS)
    file = command.options.value("command-config")
    settings = StoreSettings(
        client_properties=_properties(file) if file is not None else {},
        timeout_s=ALTER_TIMEOUT_S if command.action is Action.ALTER else DESCRIBE_TIMEOUT_S,
    )
    return VerbatimKafka(parse_store_url(f"kafka://{address}"), settings=settings)


def open_zookeeper(command: KafkaConfigsCommand) -> UserConfigs:
    """The ZooKeeper of `--zookeeper`, with the properties of `--zk-tls-config-file`; the caller closes it.

    Raises `UsageError` for an address or for properties that can't be read or meant.
    """
    from kafka_quotas.stores.zookeeper_user_configs import ZooKeeperUserConfigs  # noqa: PLC0415 - loads kazoo

    address = parse_store_url(f"zk://{command.options.value('zookeeper')}")
    file = command.options.value("zk-tls-config-file")
    properties = _properties(file) if file is not None else {}
    return ZooKeeperUserConfigs(address, settings=StoreSettings(client_properties=properties))


def _properties(file: str) -> dict[str, str]:
    try:
        return read_properties(Path(file))
    except UsageError as error:
        raise unreadable_file(file, error) from error


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    if match is None:
        raise KafkaConfigsError(
            "Failed to create new KafkaAdminClient",
            error_class="org.apache.kafka.common.KafkaException",
            hint=f"invalid url in bootstrap.servers: {text}; it is host:port",
        )
    return match[1]

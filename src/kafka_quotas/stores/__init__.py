"""Stores of quotas: the embedded local store, ZooKeeper, Kafka itself and static files.

`open_store` opens any of them. Only the modules of the requested kind of store are imported.
"""

from typing import TYPE_CHECKING

from kafka_quotas.doors import lazy_names

if TYPE_CHECKING:
    from kafka_quotas.stores.address import (
        ServerAddress,
        StoreKind,
        StoreSettings,
        StoreUrl,
        UnresponsiveBrokers,
        absolute_path,
        default_store_url,
        is_address_of,
        parse_store_url,
    )
    from kafka_quotas.stores.contexts import (
        Context,
        Contexts,
        Secret,
        SecretPlace,
        checked_context_name,
        checked_metrics_url,
        contexts_path,
        is_secret_property,
        read_contexts,
        secret_at,
        with_context,
        with_current,
        without_context,
        write_contexts,
    )
    from kafka_quotas.stores.files.atomic_write import replace_text, save_text
    from kafka_quotas.stores.files.journal import (
        LAST,
        Journal,
        JournalContent,
        JournalEntry,
        JournalWriter,
        changed_quotas,
        default_journal_path,
        due_undos,
        new_run_id,
        settled_ids,
        stores_with_undos,
    )
    from kafka_quotas.stores.files.yaml_reader import yaml_documents, yaml_node
    from kafka_quotas.stores.kafka.broker_client import BrokerClient, LostAnswerError, kafka_access
    from kafka_quotas.stores.kafka.cluster_client import ClusterClient
    from kafka_quotas.stores.kafka.store import KafkaRawQuotas, KafkaStore
    from kafka_quotas.stores.static import read_static_quotas, static_properties_missing
    from kafka_quotas.stores.store import (
        Alteration,
        AlterationResult,
        BrokerAnswerError,
        ClusterInfo,
        Polling,
        QuotaEntry,
        Store,
        alterations_of,
        content_of,
        errors_of,
        name_resolves,
    )
    from kafka_quotas.stores.zookeeper.reader import ZooKeeperUserConfigs


def open_store(url: "StoreUrl | str | None", *, settings: "StoreSettings | None" = None) -> "Store":
    """Return the store at `url`, or with None the local one in the user's data folder.

    Nothing is written or connected yet: a local file appears with the first change, a server is contacted at the first
    call.

    Raises:
        UsageError: The address can't be parsed, or a property in `settings` has no valid value.
    """
    from kafka_quotas.stores.address import (  # noqa: PLC0415
        StoreKind,
        StoreSettings,
        default_store_url,
        parse_store_url,
    )

    settings = settings or StoreSettings()
    address = parse_store_url(url) if isinstance(url, str) else url or default_store_url()
    match address.kind:
        case StoreKind.LOCAL:
            from kafka_quotas.stores.local import LocalStore  # noqa: PLC0415 - loads sqlite3

            return LocalStore(address.path, settings=settings, make_folder=address.makes_folder)
        case StoreKind.STATIC:
            from kafka_quotas.stores.static import StaticStore  # noqa: PLC0415 - one kind of several

            return StaticStore(address.path)
        case StoreKind.ZOOKEEPER:
            from kafka_quotas.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - loads kazoo

            return ZooKeeperStore(address, settings=settings)
        case StoreKind.KAFKA:
            from kafka_quotas.stores.kafka.store import KafkaStore  # noqa: PLC0415 - one kind of several

            return KafkaStore(address, settings=settings)


__getattr__, __dir__ = lazy_names(__name__)

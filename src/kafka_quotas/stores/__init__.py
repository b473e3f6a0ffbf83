"""Stores of quotas: the embedded local store, ZooKeeper, Kafka itself and static files.

`open_store` opens any of them. Only the modules of the requested kind of store are imported.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_quotas.stores.settings import StoreSettings
    from kafka_quotas.stores.store import Store
    from kafka_quotas.stores.url import StoreUrl


def open_store(url: "StoreUrl | str | None", *, settings: "StoreSettings | None" = None) -> "Store":
    """Return the store at `url`, or with None the local one in the user's data folder.

    Nothing is written or connected yet: a local file appears with the first change, a server is contacted at the first
    call.

    Raises:
        UsageError: The address can't be parsed, or a property in `settings` has no valid value.
    """
    from kafka_quotas.stores.settings import StoreSettings  # noqa: PLC0415 - the room's parts need no settings
    from kafka_quotas.stores.url import StoreKind, default_store_url, parse_store_url  # noqa: PLC0415

    settings = settings or StoreSettings()
    address = parse_store_url(url) if isinstance(url, str) else url or default_store_url()
    match address.kind:
        case StoreKind.LOCAL:
            from kafka_quotas.stores.local.store import LocalStore  # noqa: PLC0415 - loads sqlite3

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

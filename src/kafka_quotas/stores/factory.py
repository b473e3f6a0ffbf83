"""Opening of stores: from an address to a `Store`.

Only the modules of the requested kind of store are imported.
"""

from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Store
from kafka_quotas.stores.url import StoreKind, StoreUrl, default_store_url, parse_store_url

_DEFAULTS = StoreSettings()


def open_store(url: StoreUrl | str | None, *, settings: StoreSettings = _DEFAULTS) -> Store:
    """Return the store at `url`, or with None the local one in the user's data folder.

    Nothing is written or connected yet: a local file appears with the first change, a server is contacted at the first
    call.

    Raises:
        UsageError: The address can't be parsed, or a property in `settings` has no valid value.
    """
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

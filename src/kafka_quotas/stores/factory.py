"""The only way to open a store: from an address to a `Store`.

Only the modules of the requested kind of store are imported.
"""

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Store
from kafka_quotas.stores.url import StoreKind, StoreUrl, default_local_path, parse_store_url

_DEFAULTS = StoreSettings()


def open_store(url: str | None, *, settings: StoreSettings = _DEFAULTS) -> Store:
    """Return the store at `url`, without writing or connecting yet.

    A local file appears with the first change, and a server is contacted at the first call.

    Args:
        url: The address of the store, None for the local store in the user's data folder.
        settings: How to open it.

    Raises:
        UsageError: The address can't be parsed, or a property in `settings` has no valid value.
    """
    address = StoreUrl(kind=StoreKind.LOCAL, path=default_local_path()) if url is None else parse_store_url(url)
    match address.kind:
        case StoreKind.LOCAL:
            return _open_local(address, settings, make_folder=url is None)
        case StoreKind.STATIC:
            return _open_static(address)
        case StoreKind.ZOOKEEPER:
            from kafka_quotas.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - loads kazoo

            return ZooKeeperStore(address, settings=settings)
        case StoreKind.KAFKA:
            from kafka_quotas.stores.kafka.store import KafkaStore  # noqa: PLC0415 - one kind of several

            return KafkaStore(address, settings=settings)


def _open_local(address: StoreUrl, settings: StoreSettings, *, make_folder: bool) -> Store:
    """Return the local store, which creates its folder only where `make_folder` is set."""
    from kafka_quotas.stores.local.store import LocalStore  # noqa: PLC0415 - loads sqlite3

    if address.path is None:
        raise UsageError("a local store needs a path")
    return LocalStore(address.path, settings=settings, make_folder=make_folder)


def _open_static(address: StoreUrl) -> Store:
    from kafka_quotas.stores.static import StaticStore  # noqa: PLC0415 - one kind of several

    if address.path is None:
        raise UsageError("a static store needs a file")
    return StaticStore(address.path)

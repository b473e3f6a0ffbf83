"""The window settings that the brokers of a cluster run with."""

from collections.abc import Mapping

from kafka_quotas.commands.window_settings import WINDOW_PROPERTIES, WindowSource
from kafka_quotas.core.errors import StoreUnreachableError, UsageError
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store_url import parse_store_url


def broker_source(url: str, settings: StoreSettings) -> WindowSource:
    """Return the window settings of the brokers behind `kafka://HOST:PORT[,HOST:PORT...]`.

    A broker that does not answer is taken to have those of the others, with a warning.

    Raises:
        StoreUnreachableError: No broker answers.
        StoreRefusedError: The brokers may not be asked.
        UsageError: The brokers do not agree.
    """
    from kafka_quotas.stores.kafka_cluster import KafkaCluster  # noqa: PLC0415 - only a Kafka store needs it

    cluster = KafkaCluster(parse_store_url(url), settings=settings)
    try:
        brokers = cluster.broker_settings(WINDOW_PROPERTIES)
    finally:
        cluster.close()
    if not brokers.brokers:
        raise StoreUnreachableError(
            f"no broker of {url} could be asked for its windows: {brokers.missing}",
            hint="check that the addresses which the brokers advertise can be reached from here",
        )
    if brokers.missing is not None:
        settings.warn(f"windows are those of the other brokers: {brokers.missing}")
    return agreed({broker.node_id: broker.properties for broker in brokers.brokers}, url)


def agreed(by_broker: Mapping[int, Mapping[str, str]], url: str) -> WindowSource:
    """The settings that all brokers share, by broker id.

    Raises `UsageError` where two brokers differ.
    """
    properties: dict[str, str] = {}
    for name in WINDOW_PROPERTIES:
        values = {broker: settings[name] for broker, settings in by_broker.items() if name in settings}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{value} on broker {broker}" for broker, value in sorted(values.items()))
            option = "--" + name.replace(".", "-")
            raise UsageError(f"the brokers differ in {name}: {told}", hint=f"choose one with {option}")
        properties.update((name, value) for value in values.values())
    return WindowSource(name=f"brokers of {url}", properties=properties)

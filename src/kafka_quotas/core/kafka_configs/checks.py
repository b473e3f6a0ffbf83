"""The allowed combinations of options, in the order in which `kafka-configs` checks them.

**Source:** `ConfigCommand.ConfigCommandOptions.checkArgs` of Kafka 4.3.1, and of 3.9 where `--zookeeper` is given.
"""

import re
from collections.abc import Callable, Sequence

from kafka_quotas.core.kafka_configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENTS,
    DEFAULT_FLAGS,
    IPS,
    NAMED_FLAGS,
    USERS,
    entity_names,
    entity_types,
)
from kafka_quotas.core.kafka_configs.options import USAGE, KafkaConfigsError, Options
from kafka_quotas.core.model.ip_address import is_address_or_host
from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.model.sanitizer import DEFAULT_NAME

_BROKER_SIDE_TYPES = ("topics", CLIENTS, USERS, BROKERS, IPS, "client-metrics", "groups", BROKER_LOGGERS)
_ZOOKEEPER_TYPES = (USERS, BROKERS)
_WITH_DEFAULTS = {USERS, CLIENTS, BROKERS, IPS}
_CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_options(options: Options, *, resolves: Callable[[str], bool]) -> None:
    """Refuse a combination of options that `kafka-configs` does not allow.

    Raises:
        KafkaConfigsError: A broken rule, with the text of the first one.
    """
    _check_action(options)
    types = entity_types(options)
    _check_types(options, types)
    names = entity_names(options)
    _check_connection(options)
    if any(names):
        _check_names(options, types, resolves)
    if options.has("describe"):
        _check_describe(options, types, names)
    if options.has("alter"):
        _check_alter(options, types, names)


def _check_action(options: Options) -> None:
    if options.has("alter") == options.has("describe"):
        raise KafkaConfigsError("Command must include exactly one action: --describe, --alter", error_class=USAGE)
    for other in ("add-config", "delete-config"):
        if options.has("describe") and options.has(other):
            raise KafkaConfigsError(f'Option "[describe]" can\'t be used with option "[{other}]"', error_class=USAGE)


def _check_types(options: Options, types: Sequence[str]) -> None:
    repeated = [kind for index, kind in enumerate(types) if kind in types[:index]]
    if repeated:
        raise KafkaConfigsError(f"Duplicate entity type(s) specified: {','.join(repeated)}")
    on_brokers = options.has("bootstrap-server", "bootstrap-controller")
    if not on_brokers and not options.has("zookeeper"):
        raise KafkaConfigsError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    allowed = _BROKER_SIDE_TYPES if on_brokers else _ZOOKEEPER_TYPES
    for kind in types:
        if kind not in allowed:
            raise KafkaConfigsError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(allowed)} with a "
                f"{'--bootstrap-server or --bootstrap-controller' if on_brokers else '--zookeeper'} argument",
            )
    if not types:
        raise KafkaConfigsError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise KafkaConfigsError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    if options.has("entity-name", "entity-type", "entity-default") and options.has(*NAMED_FLAGS, *DEFAULT_FLAGS):
        raise KafkaConfigsError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )


def _check_connection(options: Options) -> None:
    given = [connection for connection in _CONNECTIONS if options.has(connection)]
    if len(given) > 1:
        either = "--bootstrap-server or --bootstrap-controller"
        if options.has("zookeeper"):
            either = "--bootstrap-server, --boostrap-controller, and --zookeeper"  # the misspelling is Kafka's
        raise KafkaConfigsError(f"Only one of {either} can be specified")
    if options.has("all") and options.has("zookeeper"):
        raise KafkaConfigsError("--bootstrap-server must be specified for --all")
    if options.has("zk-tls-config-file") and not options.has("zookeeper"):
        raise KafkaConfigsError("Only the --zookeeper option can be used with the --zk-tls-config-file option.")


def _check_names(options: Options, types: Sequence[str], resolves: Callable[[str], bool]) -> None:
    if {BROKERS, BROKER_LOGGERS} & set(types):
        for broker_id in _given_values(options, "entity-name", "broker", "broker-logger"):
            if not _INTEGER.fullmatch(broker_id) or not -INT_MAX - 1 <= int(broker_id) <= INT_MAX:
                raise KafkaConfigsError(
                    f"The entity name for {types[0]} must be a valid integer broker id, but it is: {broker_id}"
                )
    if IPS in types:
        for address in _given_values(options, "entity-name", "ip"):
            if address != DEFAULT_NAME and not is_address_or_host(address, resolves):
                raise KafkaConfigsError(
                    f"The entity name for {types[0]} must be a valid IP or resolvable host, but it is: {address}"
                )


def _given_values(options: Options, *names: str) -> list[str]:
    return [value for value in map(options.value, names) if value is not None]


def _check_describe(options: Options, types: Sequence[str], names: Sequence[str]) -> None:
    if options.has("entity-default") and not _WITH_DEFAULTS & set(types):
        raise KafkaConfigsError(f"--entity-default must not be specified with --describe of {','.join(types)}")
    if BROKER_LOGGERS in types and not any(names):
        raise KafkaConfigsError(f"An entity name must be specified with --describe of {','.join(types)}")


def _check_alter(options: Options, types: Sequence[str], names: Sequence[str]) -> None:
    if _WITH_DEFAULTS & set(types):
        if not names:
            raise KafkaConfigsError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not any(names):
        raise KafkaConfigsError(f"An entity name must be specified with --alter of {','.join(types)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise KafkaConfigsError("Only one of --add-config or --add-config-file must be specified")
    if not options.has("add-config", "add-config-file", "delete-config"):
        raise KafkaConfigsError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )

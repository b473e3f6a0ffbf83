"""The keys that may be set and removed on each entity, checked before any request to a broker.

**Source:** `ConfigCommand.alterConfig`, `alterUserScramCredentialConfigs` and `alterConfigWithZk` (Kafka 4.0).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS
from kafka_quotas.core.kafka_configs.entities import CLIENTS, IPS, USERS
from kafka_quotas.core.kafka_configs.options import ILLEGAL_ARGUMENT, KafkaConfigsError
from kafka_quotas.core.model.quota_key import QUOTA_KEYS

NOT_SUPPORTED = "not supported"
"""The error class of what `kafka-configs` does and this program does not."""

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_DEFAULT_ITERATIONS = _LEAST_ITERATIONS = 4096
_ON_BROKERS = "using --bootstrap-server."


def check_keys(types: Sequence[str], names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Refuse keys that may not be altered on the entity, which is a user, a client, both, or an ip.

    Raises:
        KafkaConfigsError: A key that is not allowed, or credentials, which are no quotas.
    """
    if types[0] == IPS:
        unknown = [key for key in dict.fromkeys([*added, *deleted]) if not _is_quota(key, for_ip=True)]
        if unknown:
            raise KafkaConfigsError(
                f"Only connection quota configs can be added for '{IPS}' {_ON_BROKERS} "
                f"Unexpected config names: {','.join(unknown)}"
            )
    elif types[0] == CLIENTS or len(types) == 2:
        _refuse_unknown("quota", CLIENTS, added, deleted, others=SCRAM_MECHANISMS)
    else:
        _check_user_keys(names, added, deleted)
    if types[0] != IPS and not any(_is_quota(key) for key in (*added, *deleted)) and len(names) != 1:
        raise KafkaConfigsError(
            "Altering user SCRAM credentials should never occur for more zero or multiple users: "
            + as_scala("List", names),
            error_class="java.lang.IllegalStateException",
        )


def check_zookeeper_keys(added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Refuse keys of a user that may not be altered through ZooKeeper.

    Raises:
        KafkaConfigsError: Quotas, or credentials, which are no quotas.
    """
    if not {*added, *deleted} <= set(SCRAM_MECHANISMS):
        pairs = ", ".join(f"{key}={value}" for key, value in added.items())
        listed = as_scala("ArrayBuffer" if deleted else "List", deleted)
        raise KafkaConfigsError(
            f"requirement failed: --bootstrap-server option must be specified to update {USERS} configs: "
            f"{{add: {{{pairs}}}, delete: {listed}}}. "
            "User configuration updates using ZooKeeper are only supported for SCRAM credential updates."
        )
    if added or deleted:
        _refuse_credentials()


def as_scala(name: str, items: Iterable[str]) -> str:
    """Return items as a Scala collection of that name prints them."""
    return f"{name}({', '.join(items)})"


def _refuse_unknown(
    what: str, kind: str, added: Mapping[str, str], deleted: Sequence[str], *, others: Sequence[str] = ()
) -> None:
    """Refuse keys that are neither quotas nor credentials, and `others` after them."""
    for verb, collection, keys in (("added", "Set", list(added)), ("deleted", "ArrayBuffer", deleted)):
        unknown = [key for key in keys if key not in SCRAM_MECHANISMS and not _is_quota(key)]
        unknown += [key for key in keys if key in others]
        if unknown:
            raise KafkaConfigsError(
                f"Only {what} configs can be {verb} for '{kind}' {_ON_BROKERS} "
                f"Unexpected config names: {as_scala(collection, unknown)}"
            )


def _check_user_keys(names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]) -> None:
    _refuse_unknown("quota and SCRAM credential", USERS, added, deleted)
    if not {*added, *deleted} & set(SCRAM_MECHANISMS):
        return
    if "" in names:
        raise KafkaConfigsError(
            f"The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials {_ON_BROKERS}"
        )
    if any(_is_quota(key) for key in (*added, *deleted)):
        raise KafkaConfigsError(
            f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}' {_ON_BROKERS}"
        )
    for mechanism, credential in added.items():
        _check_credential(mechanism, credential)
    _refuse_credentials()


def _check_credential(mechanism: str, credential: str) -> None:
    match = _CREDENTIAL.fullmatch(credential)
    if match is None:
        constant = mechanism.replace("-", "_")  # it is the name of the Java constant that is printed
        raise KafkaConfigsError(f"Invalid credential property {constant}={credential}")
    given = "-1" if match[1] is None else match[1]
    if not given.strip("-"):
        raise KafkaConfigsError(f'For input string: "{given}"', error_class="java.lang.NumberFormatException")
    iterations = _DEFAULT_ITERATIONS if given == "-1" else int(given)
    if iterations < _LEAST_ITERATIONS:
        raise KafkaConfigsError(
            f"Iterations {iterations} is less than the minimum {_LEAST_ITERATIONS} required for {mechanism}",
            error_class=ILLEGAL_ARGUMENT,
        )


def _refuse_credentials() -> None:
    raise KafkaConfigsError(
        "SCRAM credentials are not quotas; nothing was changed",
        error_class=NOT_SUPPORTED,
        hint="use Kafka's own kafka-configs for them",
    )


def _is_quota(key: str, *, for_ip: bool = False) -> bool:
    return key in QUOTA_KEYS and QUOTA_KEYS[key].for_ip == for_ip

"""Manifests with quotas: Strimzi's `KafkaUser` and `Kafka`, Jikkou's `KafkaClientQuota`, and Aiven's quotas in Jikkou.

A file has any number of documents, of which those of other kinds have no quotas. The quotas of a `KafkaUser` are those
of the user that it logs in as, which is `CN=NAME` with a certificate. `Kafka.spec.kafka.quotas` of the type `kafka` are
those of the default user; the type `strimzi` is a plugin with limits of all clients together.

**Source:** Strimzi's `KafkaUserQuotas` (whose rates are of 32 bits), `QuotasPluginKafka`, `KafkaUserModel.getUserName`
and `DefaultKafkaQuotasManager`; Jikkou's `KafkaClientQuotaType` and its examples of `KafkaClientQuota` and
`KafkaQuota`.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.formats.nodes import Node, is_null, json_node
from kafka_quotas.core.model.entity import CLIENT_ID, USER, Entity
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    INT_MAX,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
)
from kafka_quotas.core.quota_files.writer import Quotas, yaml_word
from kafka_quotas.stores import yaml_documents

_SPELLINGS: Final = {key: re.sub("_(.)", lambda match: match[1].upper(), key) for key in QUOTA_KEYS}
_KEYS: Final = {name: key for key, name in _SPELLINGS.items() if key != CONNECTION_CREATION_RATE.name}
_CERTIFICATE: Final = "CN="
_CLUSTER: Final = "my-cluster"
_RESOURCE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253
_FIELDS: Final = {USER: "user", CLIENT_ID: "clientId"}
_JIKKOU_TYPES: Final[Mapping[str, Mapping[str, bool]]] = {
    "USER": {USER: False},
    "USERS_DEFAULT": {USER: True},
    "USER_CLIENT": {USER: False, CLIENT_ID: False},
    "USER_ALL_CLIENTS": {USER: False, CLIENT_ID: True},
    "CLIENT": {CLIENT_ID: False},
    "CLIENTS_DEFAULT": {CLIENT_ID: True},
}
"""The parts of each type of entity, and whether they are defaults."""


def _read(text: str, source: str) -> Read:
    nodes = [json_node(text, source)] if source.endswith(".json") else yaml_documents(text, source)
    found = Found(source)
    for node in nodes:
        if isinstance(node.value, dict):
            _manifest(node, found)
        elif node.value is not None:
            found.refuse(node.location, "not a manifest", "it has apiVersion, kind and spec")
    return found.document()


def _manifest(node: Node, found: Found, around: tuple[str, str] = ("", "")) -> None:
    group = _text(node, "apiVersion", around[0]).partition("/")[0]
    kind = _text(node, "kind", around[1])
    items = node.part("items")
    if kind.endswith("List") and items is not None and isinstance(items.value, list):
        for item in items.items:
            if isinstance(item.value, dict):
                _manifest(item, found, (group, kind.removesuffix("List")))
    elif (group, kind) in _READERS:
        _READERS[group, kind](node, found)


def _text(node: Node, path: str, otherwise: str = "") -> str:
    value = None if (part := node.part(path)) is None else part.value
    return str(value) if isinstance(value, str) and not is_null(value) else otherwise


def _strimzi_user(node: Node, found: Found) -> None:
    quotas, name = node.part("spec.quotas"), _text(node, "metadata.name")
    if quotas is None or quotas.value is None:
        return
    if not name:
        found.refuse(node.location, "metadata.name is missing")
        return
    logs_in_by_certificate = _text(node, "spec.authentication.type") in ("tls", "tls-external")
    _add(found, quotas, {USER: f"{_CERTIFICATE if logs_in_by_certificate else ''}{name}"})


def _strimzi_default(node: Node, found: Found) -> None:
    quotas = node.part("spec.kafka.quotas")
    if quotas is None or quotas.value is None:
        return
    kind = _text(quotas, "type")
    if kind == "kafka":
        _add(found, quotas, {USER: None}, others=("type",))
    else:
        limits = ", ".join(name for name in quotas.value if name != "type") if isinstance(quotas.value, dict) else ""
        found.leave_out(quotas.location, f"quotas of the type {kind or '(none)'} ({limits}), which are not Kafka's own")


def _jikkou_quota(node: Node, found: Found) -> None:
    kind, configs = _text(node, "spec.type"), node.part("spec.configs")
    if kind not in _JIKKOU_TYPES:
        hint = f"spec.type is one of {', '.join(_JIKKOU_TYPES)}"
        found.refuse(node.location, f"spec.type is {kind or 'missing'}", hint)
        return
    names = {part: _text(node, f"spec.entity.{_FIELDS[part]}") or None for part in _JIKKOU_TYPES[kind]}
    for part, is_default in _JIKKOU_TYPES[kind].items():
        if (names[part] is None) != is_default:
            wanted = "no name" if is_default else "a name"
            found.refuse(node.location, f"the type {kind} takes {wanted} in spec.entity.{_FIELDS[part]}")
            return
    if configs is not None:
        _add(found, configs, names)


def _aiven_quota(node: Node, found: Found) -> None:
    spec = node.part("spec")
    if spec is None or not isinstance(spec.value, dict):
        found.refuse(node.location, "spec is missing")
        return
    given = {kind: name for kind, field in _FIELDS.items() if (name := _text(spec, field))}
    names = {kind: None if name == "default" else name for kind, name in given.items()}
    _add(found, spec, names, others=_FIELDS.values())


_READERS: Final[Mapping[tuple[str, str], Callable[[Node, Found], None]]] = {
    ("kafka.strimzi.io", "KafkaUser"): _strimzi_user,
    ("kafka.strimzi.io", "Kafka"): _strimzi_default,
    ("kafka.jikkou.io", "KafkaClientQuota"): _jikkou_quota,
    ("kafka.aiven.io", "KafkaQuota"): _aiven_quota,
}


def _add(found: Found, node: Node, entity: Mapping[str, str | None], *, others: Collection[str] = ()) -> None:
    """Add the quotas that a mapping has beside other fields."""
    if not isinstance(node.value, dict):
        found.refuse(node.location, "not a mapping of quotas")
        return
    given = ((part.location, name, part.value) for name, part in node.parts.items() if name not in others)
    found.add(node.location, entity, given, _KEYS)


def _unfit_for_strimzi(entity: Entity, quotas: Quotas, content: Content) -> str | None:
    if [kind for kind, _ in entity.parts] != [USER]:
        return "Strimzi has quotas of users alone"
    percentage = quotas.get(REQUEST_PERCENTAGE.name, 0.0)
    if percentage != int(percentage) or percentage > INT_MAX:
        return f"Strimzi takes whole numbers up to {INT_MAX} as requestPercentage"
    user = entity.user
    if not isinstance(user, str):
        return None
    name = user.removeprefix(_CERTIFICATE)
    if not _RESOURCE_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return "Kubernetes takes lower-case letters, digits, '-' and '.' in names"
    if name != user and Entity.of(user=name) in content:
        return f"a KafkaUser {name} can be either {name} or {user}"
    large = [key for key, value in quotas.items() if key != CONTROLLER_MUTATION_RATE.name and value > INT_MAX]
    return f"a KafkaUser takes at most {INT_MAX} as {_SPELLINGS[large[0]]}" if large else None


def _strimzi_text(entity: Entity, quotas: Quotas) -> str:
    user = entity.user
    if isinstance(user, str):
        name = user.removeprefix(_CERTIFICATE)
        login = "  authentication:\n    type: tls-external\n" if name != user else ""
        return (
            "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata:\n"
            f"  name: {yaml_word(name)}\n  labels:\n    strimzi.io/cluster: {_CLUSTER}\n"
            f"spec:\n{login}  quotas:\n{_values(quotas, 4)}"
        )
    return (
        "# To be merged into the Kafka resource that there is.\n"
        f"apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata:\n  name: {_CLUSTER}\n"
        f"spec:\n  kafka:\n    quotas:\n      type: kafka\n{_values(quotas, 6)}"
    )


def _values(quotas: Quotas, width: int) -> str:
    return "".join(f"{' ' * width}{_SPELLINGS[key]}: {value}\n" for key, value in figures(quotas))


def _jikkou_type(entity: Entity) -> str | None:
    parts = {kind: name is None for kind, name in entity.parts}
    return next((name for name, each in _JIKKOU_TYPES.items() if each == parts), None)


def _unfit_for_jikkou(entity: Entity, quotas: Quotas, _: Content) -> str | None:
    if _jikkou_type(entity) is None:
        return "Jikkou has no such entity"
    has_rate = CONTROLLER_MUTATION_RATE.name in quotas
    return f"Jikkou has no {CONTROLLER_MUTATION_RATE.name}" if has_rate else None


def _jikkou_text(entity: Entity, quotas: Quotas) -> str:
    fields = [f"    {_FIELDS[kind]}: {yaml_word(name)}\n" for kind, name in entity.parts if name is not None]
    names = f"  entity:\n{''.join(fields)}" if fields else "  entity: {}\n"
    return (
        "apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\nmetadata: {}\n"
        f"spec:\n  type: {_jikkou_type(entity)}\n{names}  configs:\n{_values(quotas, 4)}"
    )


def _write(document: Callable[[Entity, Quotas], str], content: Content) -> str:
    return "---\n".join(document(*item) for item in content.items())


STRIMZI: Final = ToolFormat(read=_read, write=partial(_write, _strimzi_text), unfit=_unfit_for_strimzi)
JIKKOU: Final = ToolFormat(read=_read, write=partial(_write, _jikkou_text), unfit=_unfit_for_jikkou)

"""Manifests with quotas: Strimzi's `KafkaUser` and `Kafka`, Jikkou's `KafkaClientQuota`, and Aiven's quotas in Jikkou.

A file has any number of documents, of which those of other kinds have no quotas. The quotas of a `KafkaUser` are those
of the user that it logs in as, which is `CN=NAME` with a certificate. `Kafka.spec.kafka.quotas` of the type `kafka` are
those of the default user; the type `strimzi` is a plugin with limits of all clients together.

**Source:** Strimzi's `KafkaUserQuotas` (whose rates are of 32 bits), `QuotasPluginKafka`, `KafkaUserModel.getUserName`
and `DefaultKafkaQuotasManager`; Jikkou's `KafkaClientQuotaType` and its examples of `KafkaClientQuota` and
`KafkaQuota`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, camel_case, figure
from kafka_quotas.core.changes.plan import Content, key_rank
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.formats.nodes import Node, is_null, json_node
from kafka_quotas.core.model.entity import CLIENT_ID, USER, Entity
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    INT_MAX,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
)
from kafka_quotas.core.quota_files.writer import Quotas, plain_figure, yaml_word
from kafka_quotas.stores import yaml_documents

_KEYS: Final = {camel_case(key): key for key in QUOTA_KEYS if key != CONNECTION_CREATION_RATE.name}
_CERTIFICATE: Final = "CN="
_CLUSTER: Final = "my-cluster"
_RESOURCE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253
_AIVEN_NAMES: Final = {"user": USER, "clientId": CLIENT_ID}
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
        return
    match group, kind:
        case "kafka.strimzi.io", "KafkaUser":
            _strimzi_user(node, found)
        case "kafka.strimzi.io", "Kafka":
            _strimzi_default(node, found)
        case "kafka.jikkou.io", "KafkaClientQuota":
            _jikkou_quota(node, found)
        case "kafka.aiven.io", "KafkaQuota":
            _aiven_quota(node, found)


def _text(node: Node, path: str, otherwise: str = "") -> str:
    part = node.part(path)
    is_text = part is not None and isinstance(part.value, str) and not is_null(part.value)
    return str(part.value) if part is not None and is_text else otherwise


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
    names: dict[str, str | None] = {}
    for part, is_default in _JIKKOU_TYPES[kind].items():
        field = "user" if part == USER else "clientId"
        name = _text(node, f"spec.entity.{field}")
        if bool(name) == is_default:
            wanted = "no name" if is_default else "a name"
            found.refuse(node.location, f"the type {kind} takes {wanted} in spec.entity.{field}")
            return
        names[part] = name or None
    if configs is not None:
        _add(found, configs, names)


def _aiven_quota(node: Node, found: Found) -> None:
    spec = node.part("spec")
    if spec is None or not isinstance(spec.value, dict):
        found.refuse(node.location, "spec is missing")
        return
    given = {kind: _text(spec, field) for field, kind in _AIVEN_NAMES.items() if _text(spec, field)}
    names = {kind: None if name == "default" else name for kind, name in given.items()}
    _add(found, spec, names, others=tuple(_AIVEN_NAMES))


def _add(found: Found, node: Node, entity: Mapping[str, str | None], *, others: Collection[str] = ()) -> None:
    """Add the quotas that a mapping has beside other fields."""
    if not isinstance(node.value, dict):
        found.refuse(node.location, "not a mapping of quotas")
        return
    parts = {name: part for name, part in node.parts.items() if name not in others}
    quotas: dict[str, float] = {}
    is_faulty = False
    for name, part in parts.items():
        try:
            value = figure(part.value) if name in _KEYS else None
        except InvalidQuotaError as error:
            found.refuse(part.location, error.message)
            is_faulty = True
        else:
            if value is not None:
                quotas[_KEYS[name]] = value
    for name in parts.keys() - _KEYS.keys():
        found.refuse(parts[name].location, "unknown quota", f"the quotas are {', '.join(_KEYS)}")
        is_faulty = True
    if quotas and not is_faulty:
        found.add(node.location, entity, quotas)


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
    return f"a KafkaUser takes at most {INT_MAX} as {camel_case(large[0])}" if large else None


def _strimzi_text(content: Content) -> str:
    return "---\n".join(_strimzi_documents(content))


def _strimzi_documents(content: Content) -> Iterator[str]:
    for entity, quotas in content.items():
        user, values = entity.user, _values(quotas)
        if isinstance(user, str):
            name = user.removeprefix(_CERTIFICATE)
            login = "  authentication:\n    type: tls-external\n" if name != user else ""
            yield (
                "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata:\n"
                f"  name: {yaml_word(name)}\n  labels:\n    strimzi.io/cluster: {_CLUSTER}\n"
                f"spec:\n{login}  quotas:\n{_indented(values, 4)}"
            )
        else:
            yield (
                "# To be merged into the Kafka resource that there is.\n"
                f"apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata:\n  name: {_CLUSTER}\n"
                f"spec:\n  kafka:\n    quotas:\n      type: kafka\n{_indented(values, 6)}"
            )


def _values(quotas: Quotas) -> list[str]:
    return [f"{camel_case(key)}: {plain_figure(key, quotas[key])}" for key in sorted(quotas, key=key_rank)]


def _indented(lines: list[str], width: int) -> str:
    return "".join(f"{' ' * width}{line}\n" for line in lines)


def _jikkou_type(entity: Entity) -> str | None:
    parts = {kind: name is None for kind, name in entity.parts}
    return next((name for name, each in _JIKKOU_TYPES.items() if each == parts), None)


def _unfit_for_jikkou(entity: Entity, quotas: Quotas, _: Content) -> str | None:
    if _jikkou_type(entity) is None:
        return "Jikkou has no such entity"
    has_rate = CONTROLLER_MUTATION_RATE.name in quotas
    return f"Jikkou has no {CONTROLLER_MUTATION_RATE.name}" if has_rate else None


def _jikkou_text(content: Content) -> str:
    return "---\n".join(_jikkou_documents(content))


def _jikkou_documents(content: Content) -> Iterator[str]:
    for entity, quotas in content.items():
        fields = [
            f"{'user' if kind == USER else 'clientId'}: {yaml_word(name)}"
            for kind, name in entity.parts
            if name is not None
        ]
        names = f"  entity:\n{_indented(fields, 4)}" if fields else "  entity: {}\n"
        yield (
            "apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\nmetadata: {}\n"
            f"spec:\n  type: {_jikkou_type(entity)}\n{names}  configs:\n{_indented(_values(quotas), 4)}"
        )


STRIMZI: Final = ToolFormat(read=_read, write=_strimzi_text, unfit=_unfit_for_strimzi)
JIKKOU: Final = ToolFormat(read=_read, write=_jikkou_text, unfit=_unfit_for_jikkou)

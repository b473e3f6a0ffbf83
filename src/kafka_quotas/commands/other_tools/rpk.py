"""Files of `rpk cluster quotas`: what its `describe --format yaml` prints and its `import --from` takes.

A default is printed as the name `<default>`, and `import` takes that for a name. So defaults are read, and refused when
a file is written. Redpanda has quotas by prefix of a client-id, which Kafka doesn't have, and none of requests or
connections.

**Source:** the reference of `rpk cluster quotas import` and `alter` (Redpanda 26.1), and `describe.go`, `import.go` and
`quotas.go` of `rpk/pkg/cli/cluster/quotas`.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.formats.nodes import SourceLocation, json_node
from kafka_quotas.core.formats.typed_document import FieldSpec, read_record
from kafka_quotas.core.model.entity import ABSENT, DEFAULT_NAME, ENTITY_TYPES, Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.quota_files.writer import Quotas, escaped
from kafka_quotas.stores import yaml_node

_PREFIX: Final = "client-id-prefix"
_FOREIGN_KEYS: Final = (REQUEST_PERCENTAGE.name, CONNECTION_CREATION_RATE.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str | None = None
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    location: SourceLocation
    key: str
    value: Annotated[object, FieldSpec(name="values")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quota:
    location: SourceLocation
    entity: tuple[_Part, ...]
    values: tuple[_Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quotas:
    quotas: tuple[_Quota, ...] | None = ()


def _read(text: str, source: str) -> Read:
    node = json_node(text, source) if source.endswith(".json") else yaml_node(text, source)
    found = Found(source)
    for quota in read_record(_Quotas, node).quotas or ():
        names = {part.type: None if part.name == DEFAULT_NAME else part.name for part in quota.entity}
        if _PREFIX in names:
            found.leave_out(
                quota.location, f"the prefix {names[_PREFIX]}: Kafka has no quota for prefixes of client-ids"
            )
        elif len(names) < len(quota.entity) or not names.keys() <= set(ENTITY_TYPES):
            found.refuse(quota.location, f"an entity of {', '.join(part.type for part in quota.entity)}")
        else:
            found.add(quota.location, names, ((each.location, each.key, each.value) for each in quota.values))
    return found.document()


def _unfit(entity: Entity, quotas: Quotas, _: Content) -> str | None:
    if entity.ip is not ABSENT:
        return "Redpanda has no quotas for addresses"
    if any(name in (None, DEFAULT_NAME) for _, name in entity.parts):
        return f"rpk cluster quotas import would take {DEFAULT_NAME} for a name"
    foreign = [key for key in quotas if key in _FOREIGN_KEYS]
    return f"Redpanda has no {foreign[0]}" if foreign else None


def _write(content: Content) -> str:
    return "".join(["quotas:\n", *map(_quota, content.items())]) if content else "quotas: []\n"


def _quota(item: tuple[Entity, Quotas]) -> str:
    entity, quotas = item
    parts = "".join(f"      - name: {escaped(name or '')}\n        type: {kind}\n" for kind, name in entity.parts)
    values = "".join(f'      - key: {key}\n        values: "{value}"\n' for key, value in figures(quotas))
    return f"  - entity:\n{parts}    values:\n{values}"


FORMAT: Final = ToolFormat(read=_read, write=_write, unfit=_unfit)

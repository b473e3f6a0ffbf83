"""Message definitions out of kio's schemas: every API, in the versions that Kafka 4 serves."""

import dataclasses

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from generators.message import Field, Message

# What kio names by meaning, by its form on the wire.
_WIRE_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


def api_names() -> dict[int, str]:
    """Return the names of the APIs that kio knows, in Kafka's spelling of constants, by key."""
    return {key: name.upper() for key, name in sorted(api_key_map.items())}


def error_names() -> dict[int, str]:
    """Return the names of all error codes, in Kafka's spelling of constants."""
    return {code.value: code.name.upper() for code in ErrorCode}


def versions(api_key: int) -> range:
    """Return the versions of one API that kio knows."""
    known = [v for v, types in schema_name_map[api_key_map[api_key]].items() if EntityType.response in types]
    return range(min(known), max(known) + 1)


def response(api_key: int, version: int) -> Message:
    """Return the definition of one response."""
    return _message(load_response_schema(api_key, version), "Response")


def request(api_key: int, version: int) -> Message:
    """Return the definition of one request."""
    return _message(load_request_schema(api_key, version), "Request")


def _message(schema: type[Entity], suffix: str) -> Message:
    return Message(name=schema.__name__.removesuffix(suffix), is_flexible=schema.__flexible__, fields=_fields(schema))


def request_is_flexible(api_key: int, version: int) -> bool:
    """Return whether the request's header has a tag section."""
    return bool(load_request_schema(api_key, version).__header_schema__.__flexible__)


def _fields(schema: type[Entity]) -> tuple[Field, ...]:
    return tuple(_field(field) for field in dataclasses.fields(schema))


def _field(field: dataclasses.Field[object]) -> Field:
    shape = classify_field(field)
    inner = shape.type_ if isinstance(shape, EntityField | EntityTupleField) else None
    kind = "struct" if inner is not None else get_schema_field_type(field)
    return Field(
        name="throttle_time_ms" if field.name == "throttle_time" else field.name,
        kind=_WIRE_KINDS.get(kind, kind),
        is_array=shape.is_array,
        is_nullable=is_optional(field),
        tag=get_field_tag(field),
        fields=_fields(inner) if inner is not None else (),
    )

"""Messages made by kio with every field filled, tagged ones included: what the wire layer is tried on."""

import dataclasses
import datetime as dt
import io
import itertools
import uuid
from collections.abc import Callable
from functools import cache

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_schema_field_type,
)
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta
from kio.static.protocol import Entity
from tests.support.frames.framing import framed

ELEMENTS = 3
"""How many elements every array gets; more than one, so that a walk has to get from one to the next."""


def versions_of(entity_type: EntityType) -> list[tuple[int, int]]:
    """Return every (API key, version) that kio knows."""
    return [
        (key, version)
        for key, name in sorted(api_key_map.items())
        for version, types in sorted(schema_name_map[name].items())
        if entity_type in types
    ]


class _Filler:
    """Fills fields with values that differ from each other and from the defaults."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._primitives: dict[str, Callable[[int], object]] = {
            "bool": lambda _: True,
            "string": lambda n: f"text-{n}" * (1 + n % 40),
            "bytes": lambda n: bytes(range(n % 256)),
            "records": lambda n: bytes(n * 7 % 256 for _ in range(200)),
            "uuid": lambda n: uuid.UUID(int=n),
            "error_code": lambda n: ErrorCode(n % 80),
            "timedelta_i32": lambda n: dt.timedelta(milliseconds=n),
            "timedelta_i64": lambda n: dt.timedelta(milliseconds=n),
            "datetime_i64": lambda n: dt.datetime.fromtimestamp(1_700_000_000 + n, dt.UTC),
            "float64": float,
            "int8": lambda n: n % 127,
            "uint16": lambda n: n,
        }

    def entity(self, schema: type[Entity]) -> Entity:
        return schema(**{field.name: self._value(field) for field in dataclasses.fields(schema)})

    def _value(self, field: dataclasses.Field[object]) -> object:
        shape = classify_field(field)
        if isinstance(shape, EntityField):
            return self.entity(shape.type_)
        if isinstance(shape, EntityTupleField):
            return tuple(self.entity(shape.type_) for _ in range(ELEMENTS))
        if isinstance(shape, PrimitiveTupleField):
            return tuple(self._primitive(get_schema_field_type(field)) for _ in range(ELEMENTS))
        return self._primitive(get_schema_field_type(field))

    def _primitive(self, kind: str) -> object:
        return self._primitives.get(kind, int)(next(self._numbers))


@cache
def filled_response(api_key: int, version: int) -> Entity:
    """Return a response with every field filled."""
    return _Filler().entity(load_response_schema(api_key, version))


@cache
def filled_request(api_key: int, version: int) -> Entity:
    """Return a request with every field filled."""
    return _Filler().entity(load_request_schema(api_key, version))


@cache
def empty_response(api_key: int, version: int) -> Entity:
    """Return a response whose arrays are empty."""
    filled = filled_response(api_key, version)
    arrays = {f.name: () for f in dataclasses.fields(filled) if isinstance(getattr(filled, f.name), tuple)}
    return dataclasses.replace(filled, **arrays)


def response_frame(message: Entity, *, correlation_id: int = 77) -> bytes:
    """Return the frame of a response, header and length included."""
    header = message.__header_schema__(correlation_id=i32(correlation_id))
    return _framed(header, message)


def request_frame(message: Entity, *, client_id: str | None, correlation_id: int = 77) -> bytes:
    """Return the frame of a request, header and length included."""
    header = message.__header_schema__(
        request_api_key=message.__api_key__,
        request_api_version=i16(message.__version__),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    return _framed(header, message)


def header_bytes(message: Entity, client_id: str | None) -> int:
    """Return how many bytes of a request's frame are before its body."""
    return len(request_frame(message, client_id=client_id)) - len(_encoded(message))


def decoded_response(frame: bytes, api_key: int, version: int) -> Entity:
    """Return the response of a frame.

    Fails unless header and body take up exactly the frame.
    """
    schema = load_response_schema(api_key, version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, size = entity_reader(schema.__header_schema__)(frame, 4)
    message, body_size = entity_reader(schema)(frame, 4 + size)
    assert 4 + size + body_size == len(frame)
    return message


def with_throttle(message: Entity, throttle_ms: int) -> Entity:
    """Return the same message with another throttle time."""
    throttle_time = i32Timedelta.parse(dt.timedelta(milliseconds=throttle_ms))
    return dataclasses.replace(message, throttle_time=throttle_time)


def with_addresses(value: object, translate: Callable[[int, str, int], tuple[str, int]]) -> object:
    """Return the same message with host and port of every structure that also has a node id translated."""
    if isinstance(value, tuple):
        return tuple(with_addresses(element, translate) for element in value)
    if not dataclasses.is_dataclass(value):
        return value
    changed = {f.name: with_addresses(getattr(value, f.name), translate) for f in dataclasses.fields(value)}
    node_id = changed.get("node_id", changed.get("broker_id"))
    if node_id is not None and "host" in changed and "port" in changed:
        changed["host"], changed["port"] = translate(node_id, changed["host"], changed["port"])
    return dataclasses.replace(value, **changed)


def _framed(header: Entity, message: Entity) -> bytes:
    return framed(_encoded(header) + _encoded(message))


def _encoded(message: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()

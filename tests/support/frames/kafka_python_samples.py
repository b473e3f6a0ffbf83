"""Responses made by kafka-python, for the versions older than those that kio knows."""

import itertools
import pkgutil
import uuid
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry

ELEMENTS = 3


def _load_all() -> dict[int, Any]:
    """Return API key -> response class.

    A class registers itself when its module is imported.
    """
    for package in ("admin", "consumer", "metadata", "producer"):
        path = import_module(f"kafka.protocol.{package}")
        for module in pkgutil.iter_modules(path.__path__):
            import_module(f"kafka.protocol.{package}.{module.name}")
    import_module("kafka.protocol.sasl")
    return dict(ResponseClassRegistry._response_class_registry)


RESPONSES = _load_all()


def older_versions(known: dict[int, int]) -> list[tuple[int, int]]:
    """Return the (API key, version) below `known`, the oldest version per key that another source has."""
    return [(key, version) for key in sorted(RESPONSES) for version in range(known[key])]


def filled_response(api_key: int, version: int) -> Any:
    """Return a response with every field filled."""
    cls = RESPONSES[api_key]
    return _filled(cls._struct, cls[version], version, itertools.count(1))


def _filled(struct: Any, factory: Any, version: int, numbers: Iterator[int]) -> Any:
    values = {field.name: _value(field, version, numbers) for field in struct._fields if field.for_version_q(version)}
    return factory(version=version, **values)


def _value(field: Any, version: int, numbers: Iterator[int]) -> Any:
    if field.is_struct_array():
        return [_filled(field.array_of, field.data_class, version, numbers) for _ in range(ELEMENTS)]
    if field.is_struct():
        return _filled(field, field.data_class, version, numbers)
    if field.is_array():
        return [_primitive(field.array_of.type_str.removeprefix("[]"), numbers) for _ in range(ELEMENTS)]
    return _primitive(field.type_str, numbers)


def _primitive(kind: str, numbers: Iterator[int]) -> Any:
    number = next(numbers)
    if kind == "string":
        return f"text-{number}"
    if kind in ("bytes", "records"):
        return bytes(number % 256)
    made = {"bool": True, "uuid": uuid.UUID(int=number), "bitfield": {1, 2}, "int8": number % 127}
    return made.get(kind, number)


def response_frame(message: Any, *, correlation_id: int = 77) -> bytes:
    """Return the frame of a response, header and length included."""
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def decoded_response(frame: bytes, api_key: int, version: int) -> dict[str, Any]:
    """Return the fields of the response in a frame.

    Fails unless it takes up exactly the frame.
    """
    message = RESPONSES[api_key][version].decode(frame, header=True, framed=True)
    message.with_header(correlation_id=77)
    assert bytes(message.encode(header=True, framed=True)) == frame
    fields: dict[str, Any] = message.to_dict(json=False)
    return fields

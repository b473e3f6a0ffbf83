"""A message definition reduced to what its bytes look like, by any publisher, and the layouts made from it."""

from collections.abc import Iterator
from dataclasses import dataclass

FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message or structure in one version. `kind` is a primitive's name or "struct"."""

    name: str
    kind: str
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    fields: tuple["Field", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or response in one version. `name` is the API's ("ListOffsets")."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...]

    @property
    def untagged(self) -> tuple[Field, ...]:
        """Return the fields outside of the tag section, in the order of their bytes."""
        return tuple(field for field in self.fields if field.tag is None)

    def position(self, name: str) -> int | None:
        """Return which untagged field has this name, or None."""
        return next((index for index, field in enumerate(self.untagged) if field.name == name), None)


def steps(fields: tuple[Field, ...], *, is_flexible: bool) -> tuple[str, ...]:
    """Return the steps over these untagged fields as the table writes them, fixed sizes next to each other added up."""
    merged: list[int | str] = []
    for step in _flat_steps(fields, is_flexible=is_flexible):
        last = merged[-1] if merged else None
        if isinstance(step, int) and isinstance(last, int):
            merged[-1] = last + step
        else:
            merged.append(step)
    return tuple(str(step) for step in merged)


def _flat_steps(fields: tuple[Field, ...], *, is_flexible: bool) -> Iterator[int | str]:
    for field in fields:
        if field.kind != "struct" or field.is_array:
            yield _step(field, is_flexible=is_flexible)
            continue
        if field.is_nullable:
            raise ValueError(f"{field.name}: no step is known over a structure that may be null")
        yield from _flat_steps(tuple(inner for inner in field.fields if inner.tag is None), is_flexible=is_flexible)
        if is_flexible:
            yield "t"


def structure_steps(fields: tuple[Field, ...], *, is_flexible: bool) -> tuple[str, ...]:
    """Return the steps over a whole structure, its tag section included."""
    untagged = tuple(field for field in fields if field.tag is None)
    return steps(untagged, is_flexible=is_flexible) + (("t",) if is_flexible else ())


def _step(field: Field, *, is_flexible: bool) -> int | str:
    one = FIXED_SIZES.get(field.kind) or ("s" if field.kind == "string" else "b")
    if not field.is_array:
        return one
    is_struct = field.kind == "struct"
    element = structure_steps(field.fields, is_flexible=is_flexible) if is_struct else (str(one),)
    return f"[{' '.join(element)}]"

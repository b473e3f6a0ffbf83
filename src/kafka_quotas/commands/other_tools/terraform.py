"""Terraform files: the quotas of `kafka_quota` and its like, as far as they are written out.

python-hcl2 parses the file, of which only resources with quotas are looked at. Their values are literals: a variable, a
function, a template or `for_each` has a value that only Terraform knows, and is refused. Quotas of others, such as
Confluent's of a whole cluster, are left out by name.

**Source:** `kafka_quota` and `kafka_quota_composite` of Mongey/kafka (whose default entity has no name),
`aiven_kafka_quota` (whose default is called `default`); HCL's native syntax.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figure, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.core.formats.nodes import Diagnostic, DocumentError, SourceLocation, shown
from kafka_quotas.core.model.entity import CLIENT_ID, ENTITY_TYPES, USER
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.quota_files.writer import Quotas, escaped

_RESOURCE: Final = re.compile(r"resource\s+\"?\w*quota")
_OTHERS: Final = re.compile(r"\w*(kafka|event_streams)\w*quota\w*")
_LOOPS: Final = ("count", "for_each", "dynamic")
_ALONE: Final = ("", "", "  entity_", "")
_PAIR: Final = ("_composite", "  entity {\n", "    ", "  }\n")
"""How resources differ: the end of the type, and what is around type and name of a part of the entity."""
_META: Final = ("provider", "depends_on", "lifecycle", "timeouts", "provisioner", "connection")
_ESCAPE: Final = re.compile(r"\\(?:[nrt\"\\]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_HINT: Final = "write it out, or export what Terraform has set: kafka-quotas export --bootstrap-server ..."


class _ComputedError(UsageError):
    """A value that only Terraform knows."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message, hint=_HINT)
        self.line = line


class _Tree:
    """The literal parts of a parsed text."""

    def __init__(self, text: str, source: str) -> None:
        require_extra("terraform", "hcl2", needed_by="Terraform files need")
        import hcl2  # noqa: PLC0415 - only who has such files pays for the parser
        from lark.exceptions import LarkError  # noqa: PLC0415 - as above

        self._text = text
        try:
            self.root: Any = hcl2.parses_to_tree(text)
        except (LarkError, RecursionError) as error:
            line = getattr(error, "line", None)
            place = SourceLocation(source=source, line=line if isinstance(line, int) and line > 0 else None)
            raise DocumentError(Diagnostic(location=place, message="not Terraform's syntax")) from error

    def blocks(self, block: Any) -> Iterator[tuple[Sequence[str], Any]]:
        """Yield the words and the block of each block inside a block or the file."""
        for inner in _children(_children(block, "body")[0], "block"):
            yield (
                [self.word(each) for each in inner.children if _kind(each) in ("identifier", "keyword", "string")],
                inner,
            )

    def arguments(self, block: Any) -> Mapping[str, tuple[int, Any]]:
        """Return the lines and expressions of a block's arguments."""
        found = _children(_children(block, "body")[0], "attribute")
        return _once((self.word(each.children[0]), each) for each in found)

    def argument(self, block: Any, name: str, kind: type = str) -> Any:
        """Return the literal value of an argument, None if it is null or not there."""
        given = self.arguments(block).get(name)
        value = None if given is None else self.literal(given[1])
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name} is {shown(value)}")
        return value

    def word(self, node: Any) -> str:
        """Return a label or the name of an argument."""
        return self._text[node.meta.start_pos : node.meta.end_pos].strip('"')

    def literal(self, node: Any) -> Any:
        """Return the literal value of an expression, or raise a `_ComputedError`."""
        inner: Any = node.children[0] if _kind(node) == "expr_term" and len(node.children) == 1 else None
        match _kind(inner):
            case "string":
                return self._string(inner)
            case "int_lit" | "float_lit":
                return float(inner.children[0])
            case "literal_value":
                return {"true": True, "false": False}.get(str(inner.children[0]))
            case "object":
                elements = _children(inner, "object_elem")
                return _once((self._key(each.children[0].children[0]), each) for each in elements)
        raise self._computed(node)

    def _key(self, node: Any) -> str:
        inner = node.children[0] if _kind(node) == "expr_term" else node
        return str(self.literal(node)) if _kind(inner) not in ("identifier", "keyword") else self.word(inner)

    def _string(self, node: Any) -> str:
        pieces = [each.children[0] for each in _children(node, "string_part")]
        if any(hasattr(piece, "data") or "\\" in _ESCAPE.sub("", piece) for piece in pieces):
            raise self._computed(node)
        plain = "".join(piece[1:] if piece.type.startswith("ESCAPED") else piece for piece in pieces)
        return plain.encode("latin-1", "backslashreplace").decode("unicode_escape")  # whose escapes include HCL's

    def _computed(self, node: Any) -> _ComputedError:
        text = " ".join(self._text[node.meta.start_pos : node.meta.end_pos].split())
        return _ComputedError(node.meta.line, f"only Terraform knows the value of {shown(text)}")


def _kind(node: Any) -> str:
    return str(getattr(node, "data", ""))


def _children(node: Any, kind: str) -> list[Any]:
    return [each for each in node.children if _kind(each) == kind]


def _once(pairs: Iterable[tuple[str, Any]]) -> Mapping[str, tuple[int, Any]]:
    found: dict[str, tuple[int, Any]] = {}
    for name, node in pairs:
        if name in found:
            raise _ComputedError(node.meta.line, f"{shown(name)} appears twice")
        found[name] = (node.meta.line, node.children[-1])
    return found


def _read(text: str, source: str) -> Read:
    found = Found(source)
    if _RESOURCE.search(text):  # most files of a folder have no quotas, and need no parser
        tree = _Tree(text, source)
        for words, block in tree.blocks(tree.root):
            kind = words[1] if words[0] == "resource" and len(words) > 1 else ""
            if kind in _READERS:
                _resource(tree, block, kind, found)
            elif _OTHERS.fullmatch(kind):
                found.leave_out(found.at(block.meta.line), f"{kind}, which is not one of {', '.join(_READERS)}")
    return found.document()


def _resource(tree: _Tree, block: Any, kind: str, found: Found) -> None:
    place = found.at(block.meta.line)
    try:
        lines = {name: line for name, (line, _) in tree.arguments(block).items()}
        lines |= {words[0]: inner.meta.line for words, inner in tree.blocks(block)}
        loop = next((name for name in _LOOPS if name in lines), None)
        if loop is not None:
            found.refuse(found.at(lines[loop]), f"only Terraform knows what {loop} makes", _HINT)
        else:
            found.add(place, *_READERS[kind](tree, block))
    except _ComputedError as error:
        found.refuse(found.at(error.line), error.message, error.hint)
    except KafkaQuotasError as error:
        found.refuse(place, f"{kind}: {error.message}", error.hint)


_Entry = tuple[Mapping[str, str | None], Mapping[str, float | None]]


def _quota(tree: _Tree, block: Any) -> _Entry:
    name = tree.argument(block, "entity_name")
    return {_entity_type(tree.argument(block, "entity_type")): name or None}, _config(
        tree, block, "entity_type", "entity_name"
    )


def _composite(tree: _Tree, block: Any) -> _Entry:
    entities = [inner for words, inner in tree.blocks(block) if words[0] == "entity"]
    parts = {_entity_type(tree.argument(each, "type")): tree.argument(each, "name") or None for each in entities}
    if parts.keys() != {USER, CLIENT_ID} or len(entities) != 2:
        raise UsageError("it takes one entity of the type user and one of the type client-id")
    return parts, _config(tree, block)


def _aiven(tree: _Tree, block: Any) -> _Entry:
    names = {kind: tree.argument(block, kind.replace("-", "_")) for kind in (USER, CLIENT_ID)}
    given = tree.arguments(block)
    rates = {key: _figure(tree, key, *given[key]) for key in QUOTA_KEYS if key in given}
    return (
        {kind: None if name == "default" else name for kind, name in names.items() if name},
        {key: value for key, value in rates.items() if value is not None},
    )


_READERS: Final[Mapping[str, Callable[[_Tree, Any], _Entry]]] = {
    "kafka_quota": _quota,
    "kafka_quota_composite": _composite,
    "aiven_kafka_quota": _aiven,
}


def _entity_type(name: str | None) -> str:
    if name not in ENTITY_TYPES:
        raise UsageError(f"the type of the entity is {name or 'missing'}", hint=f"one of {', '.join(ENTITY_TYPES)}")
    return name


def _config(tree: _Tree, block: Any, *others: str) -> Mapping[str, float | None]:
    unknown = tree.arguments(block).keys() - {"config", *others, *_META}
    if unknown:
        raise UsageError(f"unknown argument {shown(min(unknown))}", hint=f"known are {', '.join((*others, 'config'))}")
    pairs = tree.argument(block, "config", dict) or {}
    return {key: _figure(tree, key, line, node) for key, (line, node) in pairs.items()}


def _figure(tree: _Tree, key: str, line: int, node: Any) -> float | None:
    value = tree.literal(node)
    try:
        return figure(value)
    except KafkaQuotasError as error:
        raise _ComputedError(line, f"{key}: {error.message}") from error


def _write(content: Content) -> str:
    used: set[str] = set()
    return "\n".join(_resource_text(entity.parts, quotas, used) for entity, quotas in content.items())


def _resource_text(parts: Sequence[tuple[str, str | None]], quotas: Quotas, used: set[str]) -> str:
    words = "_".join(f"{kind}_{'default' if name is None else name}" for kind, name in parts)
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", words).strip("_").lower()
    label = next(each for number in count(1) if (each := f"{plain}_{number}" if number > 1 else plain) not in used)
    used.add(label)
    suffix, opening, start, end = _PAIR if len(parts) > 1 else _ALONE
    entity = ""
    for kind, name in parts:
        named = "" if name is None else f"{start}name = {_quoted(name)}\n"
        entity += f'{opening}{start}type = "{kind}"\n{named}{end}'
    config = "".join(f'    "{key}" = "{value}"\n' for key, value in figures(quotas))
    return f'resource "kafka_quota{suffix}" "{label}" {{\n{entity}  config = {{\n{config}  }}\n}}\n'


def _quoted(name: str) -> str:
    return escaped(name).replace("${", "\\u0024{").replace("%{", "\\u0025{")


FORMAT: Final = ToolFormat(read=_read, write=_write, unfit=lambda *_: None)

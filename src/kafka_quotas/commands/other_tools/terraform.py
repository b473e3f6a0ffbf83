"""Terraform files: the quotas of `kafka_quota` and its like, as far as they are written out.

python-hcl2 parses the file, of which only resources with quotas are looked at. Their values are literals: a variable, a
function, a template or `for_each` has a value that only Terraform knows, and is refused. Quotas of others, such as
Confluent's of a whole cluster, are left out by name.

**Source:** `kafka_quota` and `kafka_quota_composite` of Mongey/kafka (whose default entity has no name),
`aiven_kafka_quota` (whose default is called `default`); HCL's native syntax.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.core.formats.nodes import DocumentError, shown
from kafka_quotas.core.model.entity import ABSENT, CLIENT_ID, ENTITY_TYPES, USER
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.quota_files.writer import Quotas, escaped

_ALONE, _PAIR, _AIVEN = _KINDS = ("kafka_quota", "kafka_quota_composite", "aiven_kafka_quota")
_RESOURCE: Final = re.compile(r"resource\s+\"?\w*quota")
_OTHERS: Final = re.compile(r"\w*(kafka|event_streams)\w*quota\w*")
_LOOPS: Final = ("count", "for_each", "dynamic")
_NAMES: Final = ("entity_type", "entity_name")
_META: Final = ("provider", "depends_on", "lifecycle", "timeouts", "provisioner", "connection")
_ESCAPE: Final = re.compile(r"\\(?:[nrt\"\\]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_HINT: Final = "write it out, or export what Terraform has set: kafka-quotas export --bootstrap-server ..."


class _Tree:
    """The literal parts of a parsed text."""

    def __init__(self, text: str, found: Found) -> None:
        require_extra("terraform", "hcl2", needed_by="Terraform files need")
        import hcl2  # noqa: PLC0415 - only who has such files pays for the parser
        from lark.exceptions import LarkError  # noqa: PLC0415 - as above

        self._text = text
        self._source = found.source
        try:
            self.root: Any = hcl2.parses_to_tree(text)
        except (LarkError, RecursionError) as error:
            line = getattr(error, "line", None)
            known = line if isinstance(line, int) and line > 0 else None
            raise DocumentError.at(found.source, "not Terraform's syntax", line=known) from error

    def blocks(self, block: Any) -> Iterator[tuple[Sequence[str], Any]]:
        """Yield the words and the block of each block inside a block or the file."""
        for inner in _children(_children(block, "body")[0], "block"):
            names = ("identifier", "keyword", "string")
            yield [self._word(each) for each in inner.children if _kind(each) in names], inner

    def arguments(self, block: Any) -> Mapping[str, Any]:
        """Return the expressions of a block's arguments."""
        found = _children(_children(block, "body")[0], "attribute")
        return self._once((self._word(each.children[0]), each) for each in found)

    def literal(self, node: Any) -> Any:
        """Return the literal value of an expression, that of an object with its expressions by key."""
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
                return self._once((self._key(each.children[0].children[0]), each) for each in elements)
        raise self._computed(node)

    def unknown(self, node: Any, message: str) -> DocumentError:
        """Return the refusal of a part that only Terraform can make something of."""
        return DocumentError.at(self._source, message, line=node.meta.line, hint=_HINT)

    def _word(self, node: Any) -> str:
        return self._text[node.meta.start_pos : node.meta.end_pos].strip('"')

    def _once(self, pairs: Iterable[tuple[str, Any]]) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name, node in pairs:
            if name in found:
                raise self.unknown(node, f"{shown(name)} appears twice")
            found[name] = node.children[-1]
        return found

    def _key(self, node: Any) -> str:
        inner = node.children[0] if _kind(node) == "expr_term" else node
        return str(self.literal(node)) if _kind(inner) not in ("identifier", "keyword") else self._word(inner)

    def _string(self, node: Any) -> str:
        pieces = [each.children[0] for each in _children(node, "string_part")]
        if any(hasattr(piece, "data") or "\\" in _ESCAPE.sub("", piece) for piece in pieces):
            raise self._computed(node)
        plain = "".join(piece[1:] if piece.type.startswith("ESCAPED") else piece for piece in pieces)
        return plain.encode("latin-1", "backslashreplace").decode("unicode_escape")  # whose escapes include HCL's

    def _computed(self, node: Any) -> DocumentError:
        text = " ".join(self._text[node.meta.start_pos : node.meta.end_pos].split())
        return self.unknown(node, f"only Terraform knows the value of {shown(text)}")


def _kind(node: Any) -> str:
    return str(getattr(node, "data", ""))


def _children(node: Any, kind: str) -> list[Any]:
    return [each for each in node.children if _kind(each) == kind]


def _read(text: str, source: str) -> Read:
    found = Found(source, _HINT)
    if _RESOURCE.search(text):  # most files of a folder have no quotas, and need no parser
        tree = _Tree(text, found)
        for words, block in tree.blocks(tree.root):
            kind = words[1] if words[0] == "resource" and len(words) > 1 else ""
            if kind in _KINDS:
                _resource(tree, block, kind, found)
            elif _OTHERS.fullmatch(kind):
                found.leave_out(found.at(block.meta.line), f"{kind}, which is not one of {', '.join(_KINDS)}")
    return found.document()


def _resource(tree: _Tree, block: Any, kind: str, found: Found) -> None:
    try:
        arguments, blocks = tree.arguments(block), list(tree.blocks(block))
        for name, part in (*arguments.items(), *((words[0], inner) for words, inner in blocks)):
            if name in _LOOPS:
                raise tree.unknown(part, f"only Terraform knows what {name} makes")
        if kind == _AIVEN:
            given = {each: _argument(tree, arguments, each.replace("-", "_")) for each in (USER, CLIENT_ID)}
            entity: Mapping[str, str | None] = {
                each: None if name == "default" else name for each, name in given.items() if name
            }
            quotas = {key: node for key, node in arguments.items() if key in QUOTA_KEYS}
        else:
            own = _NAMES if kind == _ALONE else ()
            parts = [tree.arguments(each) for words, each in blocks if words[0] == "entity"]
            entity = _entity(tree, [arguments] if own else parts, "entity_" if own else "")
            unknown = arguments.keys() - {"config", *own, *_META}
            if unknown:
                hint = f"known are {', '.join((*own, 'config'))}"
                raise UsageError(f"unknown argument {shown(min(unknown))}", hint=hint)
            quotas = _argument(tree, arguments, "config", dict) or {}
        values = [(found.at(node.meta.line), key, tree.literal(node)) for key, node in quotas.items()]
        if kind == _AIVEN:
            values = [each for each in values if each[2] is not None]
        found.add(found.at(block.meta.line), entity, values)
    except DocumentError as error:
        found.problems += error.problems
    except KafkaQuotasError as error:
        found.refuse(found.at(block.meta.line), f"{kind}: {error.message}", error.hint)


def _argument(tree: _Tree, arguments: Mapping[str, Any], name: str, kind: type = str) -> Any:
    value = None if name not in arguments else tree.literal(arguments[name])
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} is {shown(value)}")
    return value


def _entity(tree: _Tree, parts: Sequence[Mapping[str, Any]], prefix: str) -> Mapping[str, str | None]:
    """Return the entity whose parts are arguments of a resource or of blocks in it."""
    names = {_argument(tree, each, f"{prefix}type"): _argument(tree, each, f"{prefix}name") or None for each in parts}
    odd = next((kind for kind in names if kind not in ENTITY_TYPES), ABSENT)
    if odd is not ABSENT:
        raise UsageError(f"the type of the entity is {odd or 'missing'}", hint=f"one of {', '.join(ENTITY_TYPES)}")
    if not prefix and (names.keys() != {USER, CLIENT_ID} or len(parts) != 2):
        raise UsageError("it takes one entity of the type user and one of the type client-id")
    return names


def _write(content: Content) -> str:
    used: set[str] = set()
    return "\n".join(_resource_text(entity.parts, quotas, used) for entity, quotas in content.items())


def _resource_text(parts: Sequence[tuple[str, str | None]], quotas: Quotas, used: set[str]) -> str:
    words = "_".join(f"{kind}_{'default' if name is None else name}" for kind, name in parts)
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", words).strip("_").lower()
    label = next(each for number in count(1) if (each := f"{plain}_{number}" if number > 1 else plain) not in used)
    used.add(label)
    kind_of, prefix, around = _ALONE, "  entity_", "{}"
    if len(parts) > 1:
        kind_of, prefix, around = _PAIR, "    ", "  entity {{\n{}  }}\n"
    entity = ""
    for kind, name in parts:
        named = "" if name is None else f"{prefix}name = {_quoted(name)}\n"
        entity += around.format(f'{prefix}type = "{kind}"\n{named}')
    config = "".join(f'    "{key}" = "{value}"\n' for key, value in figures(quotas))
    return f'resource "{kind_of}" "{label}" {{\n{entity}  config = {{\n{config}  }}\n}}\n'


def _quoted(name: str) -> str:
    return escaped(name).replace("${", "\\u0024{").replace("%{", "\\u0025{")


FORMAT: Final = ToolFormat(read=_read, write=_write, unfit=lambda *_: None)

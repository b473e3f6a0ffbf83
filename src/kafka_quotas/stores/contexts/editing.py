"""Edits to the text of a contexts file that leave all else in it, comments included, as it is.

Contract: the changed text is parsed again and must give exactly the wanted contexts. A file in which edits of lines
can't do that (contexts as inline tables, for instance) is refused and stays as it was.
"""

import re
from collections.abc import Iterator

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.contexts.context import Context
from kafka_quotas.stores.contexts.file import Contexts, parse_contexts
from kafka_quotas.stores.contexts.secret import Secret

_TABLE = re.compile(r"\s*\[")
_CURRENT = re.compile(r"\s*current\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def with_current(contexts: Contexts, name: str | None) -> Contexts:
    """Return the contexts with another one in use (None: none)."""
    if name is not None:
        contexts.get(name)
    lines = contexts.text.splitlines(keepends=True)
    head = next((index for index, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    kept = [line for index, line in enumerate(lines) if index >= head or not _CURRENT.match(line)]
    new = [] if name is None else [f"current = {_quoted(name)}\n"]
    if new and kept and _TABLE.match(kept[0]):
        new.append("\n")
    return _checked("".join(new + kept), contexts, wanted=contexts.contexts, current=name)


def with_context(contexts: Contexts, context: Context) -> Contexts:
    """Return the contexts with this one added, or in the place of the one of its name."""
    others = tuple(other for other in contexts.contexts if other.name != context.name)
    lines = contexts.text.splitlines(keepends=True)
    kept, replaced = _without(lines, context.name)
    block = "".join(_block(context))
    if replaced is None:
        text = "".join(kept)
        gap = "\n" if text.endswith("\n") else "\n\n" if text else ""
        text = f"{text}{gap}{block}"
    else:
        text = "".join([*kept[:replaced], block, *(["\n"] if kept[replaced:] else []), *kept[replaced:]])
    wanted = tuple(sorted((*others, context), key=lambda each: each.name))
    return _checked(text, contexts, wanted=wanted, current=contexts.current)


def without_context(contexts: Contexts, name: str) -> Contexts:
    """Return the contexts without the one of this name."""
    contexts.get(name)
    left = with_current(contexts, None) if contexts.current == name else contexts
    kept, _ = _without(left.text.splitlines(keepends=True), name)
    others = tuple(other for other in left.contexts if other.name != name)
    return _checked("".join(kept), left, wanted=others, current=left.current)


def _without(lines: list[str], name: str) -> tuple[list[str], int | None]:
    """Return the lines outside the tables of a context, and the index where they began, None without one."""
    key = rf"(?:{re.escape(name)}|{re.escape(_quoted(name))})"
    own = re.compile(rf"\s*\[\s*contexts\s*\.\s*{key}\s*(?:\.[^\]]*)?\]")
    kept: list[str] = []
    inside, begins = False, None
    for line in lines:
        if _TABLE.match(line):
            inside = own.match(line) is not None
            if inside and begins is None:
                begins = len(kept)
        if not inside:
            kept.append(line)
    return kept, begins


def _block(context: Context) -> Iterator[str]:
    header = f"contexts.{context.name if _BARE.fullmatch(context.name) else _quoted(context.name)}"
    yield f"[{header}]\n"
    yield f"store = {_quoted(context.store_url)}\n"
    if context.command_config is not None:
        yield f"command_config = {_quoted(context.command_config)}\n"
    if context.username is not None and context.password is not None:
        yield f"username = {_quoted(context.username)}\n"
        yield f"password_{context.password.place} = {_quoted(context.password.where)}\n"
    if context.control is not None:
        yield f"control = {_quoted(context.control)}\n"
    if context.prometheus:
        yield f"prometheus = [{', '.join(map(_quoted, context.prometheus))}]\n"
    if context.protected:
        yield "protected = true\n"
    if context.properties:
        yield f"\n[{header}.properties]\n"
    for name, value in context.properties.items():
        text = f"{{ {value.place} = {_quoted(value.where)} }}" if isinstance(value, Secret) else _quoted(value)
        yield f"{_quoted(name)} = {text}\n"


def _quoted(text: str) -> str:
    """Return a text as a TOML string on one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_letter(letter) for letter in escaped) + '"'


def _letter(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x20 or ord(letter) == 0x7F else letter


def _checked(text: str, before: Contexts, *, wanted: tuple[Context, ...], current: str | None) -> Contexts:
    try:
        after = parse_contexts(text, path=before.path)
    except UsageError:
        after = before
    if (after.contexts, after.current) != (wanted, current):
        raise UsageError(f"{before.path} is laid out in a way that only a person can change", hint="edit it by hand")
    return after

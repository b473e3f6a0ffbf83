r"""Java property files (`java.util.Properties`), the format of Kafka's own configuration files.

Invariants: a key occurs once in `parse_properties`, with its last value as in Java. Continuation lines are joined and
escapes (`\n`, `\t`, `\uXXXX`, `\:`) resolved.
"""

import re

_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*(?P<end>[=:\s])")
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return every key of the file with its value, in the order of the file.

    **Source:** `java.util.Properties.load`, Java 17.
    """
    result: dict[str, str] = {}
    for key, value in property_pairs(text):
        result.pop(key, None)
        result[key] = value
    return result


def property_pairs(text: str) -> list[tuple[str, str]]:
    """Return every key with its value as often as it occurs, for callers that report repeated keys."""
    return [_split(line) for line in _logical_lines(text)]


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for physical in re.split(r"\r\n|\r|\n", text):
        stripped = physical.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        if _CONTINUED.search(pending):
            pending = pending[:-1]
            continue
        lines.append(pending)
        pending = ""
    return [*lines, pending] if pending else lines


def _split(line: str) -> tuple[str, str]:
    match = _KEY_END.search(line)
    if match is None:
        return _unescape(line), ""
    end = match.start("end")
    value = line[end:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescape(line[:end]), _unescape(value)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    if match["code"]:
        return chr(int(match["code"], 16))
    return _LETTERS.get(match["letter"], match["letter"])

"""The mapping from the name in a client's certificate to the user that quotas are set on.

Rules are tried in turn, the first that matches the whole name wins: `DEFAULT` takes the name as it is,
`RULE:pattern/replacement/` with an optional `L` or `U` after it (lower or upper case) rewrites it.

**Source:** KIP-371; `SslPrincipalMapper` (Kafka 4.1) and `Matcher.replaceAll` of Java 17. Patterns are Java's as far as
Python has the same: intersections of character classes and flags after a pattern's start are refused.
"""

import re
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError

PROPERTY: Final = "ssl.principal.mapping.rules"
DEFAULT_RULES: Final = "DEFAULT"

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|\$", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_NAMED_REFERENCE: Final = re.compile(r"\\k<(\w+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One mapping rule, which takes every name as it is if it has no pattern."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        user = self.pattern.sub(self._replaced, name)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user

    def _replaced(self, match: re.Match[str]) -> str:
        def piece(found: re.Match[str]) -> str:
            literal, number, group_name = found.groups()
            if literal is not None:
                return literal
            if group_name is not None:
                return match[group_name] or ""
            return _numbered(match, number) if number is not None else "$"

        return _REFERENCE.sub(piece, self.replacement)


class PrincipalMapping:
    """The rules of `ssl.principal.mapping.rules`."""

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        self._rules = [rule for part in _SPLITTER.finditer(text.strip()) if (rule := _parsed(part[1])) is not None]

    def user(self, name: str) -> str | None:
        """Return the user for a certificate's name, None if no rule applies."""
        return next((user for rule in self._rules if (user := rule.apply(name)) is not None), None)


def _parsed(part: str) -> _Rule | None:
    if not part:
        return None
    match = _PARSER.fullmatch(part)
    if match is None:
        raise UsageError(f"{PROPERTY}: not a rule: {part!r}", hint="DEFAULT, or RULE:pattern/replacement/ with L or U")
    if match[1]:
        return _Rule()
    if "&&" in match[2]:
        raise UsageError(f"{PROPERTY}: && in a character class is not supported: {match[2]!r}")
    source = _NAMED_REFERENCE.sub(r"(?P=\1)", _NAMED_GROUP.sub("(?P<", match[2]))
    try:
        pattern = re.compile(source, re.ASCII)
    except re.error as error:
        raise UsageError(f"{PROPERTY}: not a pattern: {match[2]!r}: {error}") from error
    for reference in _REFERENCE.finditer(match[3]):
        if reference[3] is not None and reference[3] not in pattern.groupindex:
            raise UsageError(
                f"{PROPERTY}: {match[2]!r} has no group called {reference[3]!r}",
                hint=f"name one by (?<{reference[3]}>...), or use $1 for the first group",
            )
    return _Rule(pattern=pattern, replacement=match[3], case=match[4])


def _numbered(match: re.Match[str], digits: str) -> str:
    """Return the group that `$digits` means, or the text itself without such a group.

    As in Java, the group number takes as many digits as there are groups for.
    """
    count = match.re.groups
    used = 1
    if int(digits[0]) > count or (digits[0] == "0" and not count):
        return "$" + digits if digits[0] != "0" else (match[0] or "") + digits[1:]
    while used < len(digits) and int(digits[: used + 1]) <= count:
        used += 1
    return (match[int(digits[:used])] or "") + digits[used:]

"""JAAS login entries, the form in which Kafka's and ZooKeeper's properties carry a user name and a password.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";`
**Source:** `org.apache.kafka.common.security.JaasConfig` (4.0), which reads it with a `StreamTokenizer`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_quotas.core.errors import UsageError

_FLAGS = {"required", "requisite", "sufficient", "optional"}
_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_HINT = 'for example: org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="..";'


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasLogin:
    """One login entry: the class that logs in, and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)
    """Values by option name, which may be secrets."""

    def option(self, name: str, *, property_name: str) -> str:
        """Return the value of an option, which the property has to have."""
        try:
            return self.options[name]
        except KeyError:
            raise UsageError(f"{property_name} has no {name}", hint=_HINT) from None


def parse_jaas(text: str, *, property_name: str) -> JaasLogin:
    """Return the one login entry in the value of a property, of which no error shows any text."""
    words = _words(text, property_name)
    if len(words) < 3 or words[1].lower() not in _FLAGS or words[-1] != ";":
        raise UsageError(f"{property_name} is not a JAAS login entry", hint=_HINT)
    rest = words[2:-1]
    if len(rest) % 3 or any(mark != "=" for mark in rest[1::3]):
        raise UsageError(f"{property_name} has an option that is not name=value", hint=_HINT)
    return JaasLogin(module=words[0], options=dict(zip(rest[0::3], rest[2::3], strict=True)))


def _words(text: str, property_name: str) -> list[str]:
    """Return the words of an entry without quotes, where each `=` and each semicolon is a word."""
    words, position, stripped = [], 0, text.strip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise UsageError(f"{property_name} has a quote that is not closed", hint=_HINT)
        double, single, mark, bare = match.groups()
        quoted = double if double is not None else single
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else mark or bare)
        position = match.end()
    return words

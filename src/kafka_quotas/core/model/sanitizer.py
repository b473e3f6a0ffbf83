"""Entity names as ZooKeeper node names and bucket tags.

Every name has exactly one sanitized form, made of letters, digits and `.-_%` only. So the default entity's node name
`<default>` is no sanitized name. Reading is more lenient than writing, as it is in Java.

**Source:** `org.apache.kafka.common.utils.Sanitizer` (4.0), which uses Java's URLEncoder and URLDecoder.
"""

import re
import unicodedata
from urllib.parse import quote

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.java.strings import decode_utf8

DEFAULT_NAME = "<default>"
"""The node name of a default entity; never a sanitized name."""

_ESCAPED = re.compile(r"(?:%..)+|[%+]", re.DOTALL)


def sanitize(name: str) -> str:
    """Return the name percent-encoded in upper-case hex, but for letters, digits, `.`, `-` and `_`."""
    # `quote` never encodes a tilde, Java always does; one in its output can only come from the name itself.
    return quote(name.encode("utf-8", "replace"), safe="").replace("~", "%7E")


def desanitize(text: str) -> str:
    """Return the name of a sanitized text.

    `+` is a space, and bytes that are not UTF-8 become U+FFFD.

    Raises:
        InvalidQuotaError: A `%` is not followed by two hexadecimal digits.
    """
    return _ESCAPED.sub(lambda match: _decoded(match[0]), text)


def _decoded(escaped: str) -> str:
    """Return the characters of a plus sign or of a run of escapes, which are decoded together."""
    if escaped == "+":
        return " "
    if escaped == "%":
        raise InvalidQuotaError("a name ends within a percent escape", hint="a percent sign itself is written %25")
    data = bytes(_byte(escaped[start : start + 2]) for start in range(1, len(escaped), 3))
    return decode_utf8(data)


def _byte(digits: str) -> int:
    """Return the byte of the two characters after a percent sign, read like Java's `Integer.parseInt`."""
    signed = digits[1:] if digits[0] in "+-" else digits  # it takes a sign, and any Unicode digit
    values = [_digit(character) for character in signed]
    if any(value is None for value in values) or (digits[0] == "-" and values != [0]):
        raise InvalidQuotaError(
            f"not a percent escape: %{digits}",
            hint="two hexadecimal digits follow a percent sign; a percent sign itself is written %25",
        )
    return int("".join(f"{value:x}" for value in values), 16)


def _digit(character: str) -> int | None:
    """Return the value of a hexadecimal digit in any script below U+10000, or None."""
    if ord(character) > 0xFFFF:
        return None
    folded = unicodedata.normalize("NFKC", character) if "\uff21" <= character <= "\uff46" else character
    if folded in "abcdefABCDEF":
        return int(folded, 16)
    return unicodedata.decimal(character, None)

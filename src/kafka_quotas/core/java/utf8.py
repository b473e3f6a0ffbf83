"""Text from outside, with anything that is not valid UTF-8 replaced by U+FFFD under one rule.

A name that is read differently in two places is two clients, and a lone surrogate can't be written anywhere.

**Source:** Java's `new String(bytes, UTF_8)`, which a broker uses for client-ids (`RequestHeader.parse`).
"""

import re
from typing import Final

_REPLACEMENT: Final = "\ufffd"
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def decode_utf8(data: bytes) -> str:
    """Return the text of some bytes as Java reads them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java replaces an encoded surrogate once, Python each of its bytes.
        return _ENCODED_SURROGATE.sub(_REPLACEMENT.encode(), data).decode("utf-8", "replace")


def well_formed(text: str) -> str:
    """Return a text without surrogates, which JSON and command lines can bring in.

    Those that Python makes of bytes it can't decode are read as these bytes, all others are replaced.
    """
    if text.isascii():
        return text
    try:
        return decode_utf8(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return _SURROGATE.sub(_REPLACEMENT, text)

"""Which APIs clients of a listener may use.

An API that may not be used is left out of ApiVersions, so clients know before they send a request, and a request of it
all the same closes the connection: that is what a broker does with an API that its listener does not serve. The APIs of
the login and ApiVersions itself always pass.

**Source:** `ApiMessageType.ListenerType`, `SocketServer.Processor.processCompletedReceives` (4.x).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import API_TABLE

ALLOW: Final = "apis.allow"
DENY: Final = "apis.deny"
"""Names of the two lists in a listener's file."""
ALWAYS: Final = frozenset(map(int, (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)))
_KEYS: Final = {api.name.lower(): key for key, api in API_TABLE.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """The APIs that pass and those that don't, of which the latter win."""

    allow: frozenset[int] | None = None
    """Keys of the APIs that pass, None for all."""
    deny: frozenset[int] = frozenset()
    """Keys of the APIs that do not pass."""

    def permits(self, api_key: int) -> bool:
        """Return whether requests of an API may pass."""
        if api_key in ALWAYS:
            return True
        return api_key not in self.deny and (self.allow is None or api_key in self.allow)


ALL_APIS: Final = ApiAccess()
"""Access to every API."""


def parse_api_access(*, allow: str | None, deny: str | None) -> ApiAccess:
    """Return the access that two lists of APIs describe.

    Args:
        allow: Names as in Kafka's protocol, or keys, separated by commas; None for no list.
        deny: As `allow`.

    Raises:
        UsageError: A name is that of no API, a list is empty, or it denies what a login needs.
    """
    denied = frozenset() if deny is None else frozenset(_keys_in(DENY, deny))
    needed = sorted(API_TABLE[key].name for key in denied & ALWAYS)
    if needed:
        raise UsageError(f"{DENY}: clients can't do without {', '.join(needed)}", hint="leave them out")
    return ApiAccess(allow=None if allow is None else frozenset(_keys_in(ALLOW, allow)), deny=denied)


def _keys_in(name: str, text: str) -> Iterable[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"{name} names no API", hint="for example Produce,Metadata")
    for word in words:
        key = int(word) if word.isdecimal() else _KEYS.get(word.lower())
        if key is None or key > 0x7FFF:
            raise UsageError(f"{name}: there is no API {word!r}", hint="for example CreateTopics, or its key 19")
        yield key

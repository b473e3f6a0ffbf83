"""The read-only store of KIP-13's static quotas: four properties of a file.

Contract: a default is the entry of the default client-id, an override the entry of its client-id. That they rank as
levels 9 and 10, below the eight of dynamic quotas, is decided by callers of `core.resolution.effective` and by the
daemon, which pass them as static quotas. Other properties in the file, such as the rest of a `server.properties`, are
ignored. **Source:** KIP-13, "Quota Overrides" and "Configuration".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from kafka_quotas.core.errors import InvalidQuotaError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.core.formats.documents import read_document, read_properties
from kafka_quotas.core.model.entity import Entity, QuotaFilter
from kafka_quotas.core.model.quota_key import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaKey
from kafka_quotas.core.model.value_format import parse_quota_value
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.store import Alteration, AlterationResult, Polling, QuotaEntry, Snapshot, Store

_KEYS: Final = {"quota.producer": PRODUCER_BYTE_RATE, "quota.consumer": CONSUMER_BYTE_RATE}
_NAMES: Final = tuple(f"{prefix}.{suffix}" for prefix in _KEYS for suffix in ("default", "override"))


def read_static_quotas(path: Path) -> tuple[QuotaEntry, ...]:
    """Return the static quotas in a file, sorted by entity (bytes per second)."""
    try:
        return static_quotas(read_properties(path))
    except InvalidQuotaError as error:
        raise InvalidQuotaError(f"{path}: {error.message}", hint=error.hint) from error


def static_properties_missing(path: Path) -> str | None:
    """Return a warning for a file that has none of the four properties, None for any other."""
    is_static = any(name in _NAMES for name in read_properties(path))
    return None if is_static else f"{path} has none of {', '.join(_NAMES)}"


def static_quotas(properties: Mapping[str, str]) -> tuple[QuotaEntry, ...]:
    """Return the static quotas among some properties, sorted by entity."""
    quotas: dict[Entity, dict[str, float]] = {}
    for name in properties:
        if name.startswith(tuple(_KEYS)) and name not in _NAMES:
            raise InvalidQuotaError(f"unknown static quota: {name}", hint=f"the properties are {', '.join(_NAMES)}")
    for prefix, key in _KEYS.items():
        for entity, value in _of_one_key(
            key, properties.get(f"{prefix}.default"), properties.get(f"{prefix}.override")
        ):
            quotas.setdefault(entity, {})[key.name] = value
    entries = [QuotaEntry(entity, values) for entity, values in quotas.items()]
    return tuple(sorted(entries, key=lambda entry: entry.entity.sort_key))


class StaticStore(Store):
    """The static quotas of a file, which is read anew at every call and never written."""

    kind = StoreKind.STATIC
    interval_s = 0.25

    def __init__(self, path: Path, *, polling: Polling | None = None) -> None:
        super().__init__(f"static:{path}", polling=polling)
        self._path = path

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """Refuse it."""
        return self._write(entries, validate_only=validate_only)

    def _write(self, accepted: Sequence[Alteration], *, validate_only: bool) -> NoReturn:
        del accepted, validate_only
        raise StoreRefusedError(
            f"static quotas are read-only: {self._path}", hint="edit the file, or name a store to write to with --store"
        )

    def _read(self, quota_filter: QuotaFilter) -> tuple[QuotaEntry, ...]:
        del quota_filter
        return read_static_quotas(self._path)

    def _changed(self, since: str | None) -> Snapshot | None:
        from hashlib import sha256  # noqa: PLC0415 - only a watch needs it

        try:
            revision = sha256(read_document(self._path)).hexdigest()
        except OSError as error:
            raise StoreUnreachableError(
                f"cannot read {self._path}: {error.strerror or error}", hint="check the name of the file"
            ) from error
        return None if revision == since else Snapshot(revision=revision, entries=read_static_quotas(self._path))


def _of_one_key(key: QuotaKey, default: str | None, overrides: str | None) -> Iterator[tuple[Entity, float]]:
    if default is not None and _unquoted(default):
        yield Entity.of(client_id=None), _limit(key, _unquoted(default))
    seen: set[str] = set()
    for override in filter(None, (part.strip() for part in _unquoted(overrides or "").split(","))):
        client_id, colon, limit = override.rpartition(":")
        if not colon:
            raise InvalidQuotaError(f"not client-id:limit: {override!r}", hint='for example "clientA:4M,clientB:10M"')
        if client_id in seen:
            raise InvalidQuotaError(
                f"client-id {client_id!r} has two overrides of {key.name}", hint="leave out one of them"
            )
        seen.add(client_id)
        yield Entity.of(client_id=client_id), _limit(key, limit)


def _limit(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if value <= 0:
        raise InvalidQuotaError(f"a static quota must be greater than 0: {text!r}", hint="leave it out for no limit")
    return value


def _unquoted(text: str) -> str:
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] == stripped[-1] == '"':
        return stripped[1:-1].strip()
    return stripped

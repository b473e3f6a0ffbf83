"""The local store: quotas in one SQLite file, without a server.

Contract: KRaft's rules and our refusals decide which alterations are accepted. Beside Kafka's quotas the store holds
thresholds of topics and brokers, which Kafka does not know, and refuses those of topics that add up to more than a
broker's total. The accepted alterations of one call are written in one transaction. Several processes and threads may
use the file at once. Invariants: reading never creates the file. An alteration that changes no value leaves the
revision as it is.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter, filter_verdict_local, matches, single_entity
from kafka_quotas.core.model.threshold import ThresholdSettings, is_threshold_entity
from kafka_quotas.stores.local.database import LocalFile
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings, timeouts
from kafka_quotas.stores.store import NEVER_WRITTEN, Alteration, AlterationResult, QuotaEntry, Snapshot, checked
from kafka_quotas.stores.url import StoreKind


def excessive(
    alterations: Sequence[Alteration], stored: Callable[[], Iterable[QuotaEntry]]
) -> Mapping[Entity, InvalidQuotaError]:
    """Return the refused alterations of thresholds, with the reason by entity.

    Nothing is refused where all of them together fit, so that a total and the thresholds below it can be raised in any
    order in one call. Otherwise each is applied in turn, and those that do not fit are refused.

    Args:
        alterations: The alterations of one call.
        stored: Returns the content. It is called only where a threshold is among the alterations.
    """
    thresholds = [each for each in alterations if is_threshold_entity(each.entity)]
    if not thresholds:
        return {}
    content = {entry.entity: dict(entry.quotas) for entry in stored() if is_threshold_entity(entry.entity)}
    together = {entity: dict(quotas) for entity, quotas in content.items()}
    for alteration in thresholds:
        _change(together, alteration)
    if _refusal(together) is None:
        return {}
    refused: dict[Entity, InvalidQuotaError] = {}
    for alteration in thresholds:
        changed = {entity: dict(quotas) for entity, quotas in content.items()}
        _change(changed, alteration)
        refusal = _refusal(changed)
        if refusal is None:
            content = changed
        else:
            refused[alteration.entity] = refusal
    return refused


def _change(content: dict[Entity, dict[str, float]], alteration: Alteration) -> None:
    quotas = content.setdefault(alteration.entity, {})
    for key, value in alteration.changes.items():
        if value is None:
            quotas.pop(key, None)
        else:
            quotas[key] = value


def _refusal(content: Mapping[Entity, Mapping[str, float]]) -> InvalidQuotaError | None:
    try:
        ThresholdSettings.of(content.items())
    except InvalidQuotaError as error:
        return error
    return None


POLL_INTERVAL_S = 0.05
_DEFAULTS = StoreSettings()


class LocalStore:
    """Quotas in the SQLite file at `path`, whose folder the first change creates too with `make_folder`."""

    kind = StoreKind.LOCAL

    def __init__(
        self,
        path: Path,
        *,
        settings: StoreSettings = _DEFAULTS,
        make_folder: bool = False,
        polling: Polling | None = None,
    ) -> None:
        self.url = f"local:{path}"
        self._file = LocalFile(path, timeout_s=timeouts(settings).call_s, make_folder=make_folder)
        self._polling = polling or Polling(POLL_INTERVAL_S)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        self._polling.check_open(self.url)
        refused = filter_verdict_local(quota_filter)
        if refused is not None:
            raise refused
        with self._file.reading() as connection:
            entries = [] if connection is None else _entries(connection, single_entity(quota_filter))
        return [entry for entry in entries if matches(quota_filter, entry.entity)]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        self._polling.check_open(self.url)
        results = [checked(entry, kind=self.kind, describe=self.describe) for entry in entries]
        accepted = [entry for entry, result in zip(entries, results, strict=True) if result.error is None]
        if not accepted:
            return results
        if validate_only:
            with self._file.reading() as connection:
                excess = excessive(accepted, lambda: [] if connection is None else _entries(connection, None))
        else:
            with self._file.writing() as connection:
                excess = excessive(accepted, lambda: _entries(connection, None))
                before = connection.total_changes
                for alteration in accepted:
                    if alteration.entity not in excess:
                        _apply(connection, alteration)
                if connection.total_changes != before:
                    connection.execute("UPDATE store SET revision = revision + 1")
        return [
            replace(result, error=excess[result.entity]) if result.error is None and result.entity in excess else result
            for result in results
        ]

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        return self._polling.first(lambda: self._after(since), timeout_s=timeout_s)

    def close(self) -> None:
        self._polling.stop()
        self._file.close()

    def _after(self, since: str | None) -> Snapshot | None:
        with self._file.reading() as connection:
            revision = NEVER_WRITTEN if connection is None else _revision(connection)
            if revision == since:
                return None
            return Snapshot(revision=revision, entries=() if connection is None else tuple(_entries(connection, None)))


def _apply(connection: sqlite3.Connection, alteration: Alteration) -> None:
    """Make the changes in the open transaction, without touching rows that stay the same."""
    entity = _encode(alteration.entity)
    for key, value in alteration.changes.items():
        if value is None:
            connection.execute("DELETE FROM quota WHERE entity = ? AND key = ?", (entity, key))
        else:
            connection.execute(
                "INSERT INTO quota VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value "
                "WHERE value <> excluded.value",
                (entity, key, value),
            )


def _entries(connection: sqlite3.Connection, only: Entity | None) -> list[QuotaEntry]:
    quotas: dict[str, dict[str, float]] = {}
    where, arguments = ("", ()) if only is None else (" WHERE entity = ?", (_encode(only),))
    for entity, key, value in connection.execute(f"SELECT entity, key, value FROM quota{where}", arguments):  # noqa: S608 - a constant
        quotas.setdefault(entity, {})[key] = value
    entries = [QuotaEntry(entity=_decode(entity), quotas=values) for entity, values in quotas.items()]
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def _revision(connection: sqlite3.Connection) -> str:
    store_id, revision = connection.execute("SELECT id, revision FROM store").fetchone()
    return f"{store_id}:{revision}"


def _encode(entity: Entity) -> str:
    return json.dumps(entity.parts, ensure_ascii=False, separators=(",", ":"))


def _decode(text: str) -> Entity:
    return Entity.from_pairs((kind, name) for kind, name in json.loads(text))

"""Everything that a store holds, as what `apply` reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_quotas.core.describe_filter import EVERYTHING
from kafka_quotas.core.quota_file_text import FileFormat, file_text, is_refused
from kafka_quotas.core.quota_selector import owner
from kafka_quotas.stores.store import QuotaEntry, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The entries, sorted by entity, and how many of them carry `invalid: true`."""

    store_url: str
    entries: tuple[QuotaEntry, ...]
    invalid_entries: int

    def text(self, form: FileFormat) -> Iterator[str]:
        """The file, piece by piece."""
        return file_text(((entry.entity, entry.quotas) for entry in self.entries), form)


def export(store: Store, *, selectors: Sequence[str] = ()) -> ExportResult:
    """What the store holds, of the entities that the selectors name.

    Raises `UsageError` for a selector that can't be understood, and whatever the store raises.
    """
    owns = owner(selectors)
    entries = sorted(store.describe(EVERYTHING), key=lambda entry: entry.entity.sort_key)
    kept = tuple(entry for entry in entries if owns(entry.entity))
    invalid = sum(is_refused(entry.entity, entry.quotas) for entry in kept)
    return ExportResult(store_url=store.url, entries=kept, invalid_entries=invalid)

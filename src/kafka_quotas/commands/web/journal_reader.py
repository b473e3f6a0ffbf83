"""The newest entries of this user's journal, as far as they are about one store."""

from itertools import islice
from typing import Final

from kafka_quotas.commands.web.live_quotas import JournalPage
from kafka_quotas.core.changes.journal_entry import JournalEntry
from kafka_quotas.stores.files.journal import Journal

MOST_ENTRIES: Final = 50
MOST_READ: Final = 1000
"""Most entries looked at, those of other stores included."""


def journal_page(journal: Journal, store_url: str) -> JournalPage:
    """Read the newest entries about a store.

    Raises:
        StoreError: The journal can't be read.
    """
    found: list[JournalEntry] = []
    others: dict[str, None] = {}
    for entry in islice(journal.newest_first(), MOST_READ):
        if entry.store_url != store_url:
            others.setdefault(entry.store_url)
        elif len(found) < MOST_ENTRIES:
            found.append(entry)
    return JournalPage(path=str(journal.path), entries=tuple(found), other_stores=tuple(others))

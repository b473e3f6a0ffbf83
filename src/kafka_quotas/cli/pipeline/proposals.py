"""Quotas for the pipeline's jobs, from files or a store, and how values of a quota type are shown."""

from contextlib import closing

from kafka_quotas.cli.options.stores import StoreOptions
from kafka_quotas.commands.declarative.reading import declared
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.pipeline.buckets.proposal import Proposal


def proposal_of_file(path: str, *more: str) -> Proposal:
    """Return the quotas of one file or several together, named after the first.

    Raises:
        UsageError: A file has problems.
    """
    entries = tuple(
        (each.entity, {key: value for key, value in each.quotas.items() if value is not None})
        for each in declared([path, *more]).entries
    )
    return Proposal(name=path, entries=entries)


def proposal_of_store(store: StoreOptions) -> Proposal:
    """Return the quotas of the store that the options, variables and contexts name.

    Their name is its address.
    """
    with closing(store.choose().open_existing()) as opened:
        entries = tuple((entry.entity, entry.quotas) for entry in opened.describe(EVERYTHING))
        if opened.kind.is_static:
            return Proposal(name=opened.url, entries=(), static=entries)
        return Proposal(name=opened.url, entries=entries)


def proposal_in_force(quotas: str | None, store: StoreOptions) -> Proposal:
    """Return the quotas of the file `quotas`, or those in the store where none is named."""
    if quotas is not None:
        return proposal_of_file(quotas)
    return proposal_of_store(store)


def bucket_text(user: str | None, client_id: str | None) -> str:
    """Return a bucket's name by the parts that identify it: `alice`, `alice, client app`, `client app`."""
    parts = [shown_name(user)] if user else []
    if client_id:
        parts.append(f"client {shown_name(client_id)}")
    return ", ".join(parts) or "(no client-id)"

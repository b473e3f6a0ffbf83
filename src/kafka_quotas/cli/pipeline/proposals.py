"""Quotas for the pipeline's jobs, from files or a store, and how values of a quota type are shown."""

from contextlib import closing
from pathlib import Path

from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.output.values import in_words
from kafka_quotas.commands.declarative.reading import declared
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal


def proposal_of_file(path: str) -> Proposal:
    """Return the quotas of a file, named after the file.

    Raises:
        UsageError: The file has problems.
    """
    entries = tuple(
        (each.entity, {key: value for key, value in each.quotas.items() if value is not None})
        for each in declared([path]).entries
    )
    return Proposal(name=path, entries=entries)


def proposal_of_store(*, store: str | None, context: str | None, command_config: Path | None) -> Proposal:
    """Return the quotas of the store that the options, variables and contexts name.

    Their name is its address.
    """
    choice = choose_store(
        store=store, bootstrap_server=None, zookeeper=None, command_config=command_config, context=context
    )
    with closing(choice.open()) as opened:
        entries = tuple((entry.entity, entry.quotas) for entry in opened.describe(EVERYTHING))
        if opened.url.startswith("static:"):
            return Proposal(name=opened.url, entries=(), static=entries)
        return Proposal(name=opened.url, entries=entries)


def proposal_in_force(
    quotas: str | None, *, store: str | None, context: str | None, command_config: Path | None
) -> Proposal:
    """Return the quotas of the file `quotas`, or those in the store where none is named."""
    if quotas is not None:
        return proposal_of_file(quotas)
    return proposal_of_store(store=store, context=context, command_config=command_config)


def amount_text(quota_type: str, value: float | None) -> str:
    """Format a rate or a limit of a quota type, such as `1.5 MB/s`, `12%` or `3/s`, None as an empty text."""
    if value is None:
        return ""
    key = QuotaType(quota_type).key.name
    return in_words(key, value if value >= 1000 else float(f"{value:.4g}"))


def bucket_text(user: str | None, client_id: str | None) -> str:
    """Return a bucket's name by the parts that identify it: `alice`, `alice, client app`, `client app`."""
    parts = [shown_name(user)] if user else []
    if client_id:
        parts.append(f"client {shown_name(client_id)}")
    return ", ".join(parts) or "(no client-id)"

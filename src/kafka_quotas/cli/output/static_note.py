"""A note about a file without static quotas, which looks like an empty store and may be the wrong file."""

import sys

from kafka_quotas.cli.output.render import write
from kafka_quotas.stores.url import parse_store_url


def print_static_note(store_url: str) -> None:
    """Note on standard error that a static store's file has none of the four properties."""
    address = parse_store_url(store_url)
    if not address.kind.is_static:
        return
    from kafka_quotas.stores.static import static_properties_missing  # noqa: PLC0415 - few stores are such files

    missing = static_properties_missing(address.path)
    if missing is not None:
        write(f"note: {missing}\nhint: is it the right file?", sys.stderr)

"""What `import kafka_quotas` offers to programs, as far as it is more than a name for something else."""

from kafka_quotas.commands.quotas.quota_status import resolver_of
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota
from kafka_quotas.stores.store import Store


def effective(
    store: Store, *, user: str | None = None, client_id: str | None = None, ip: str | None = None
) -> tuple[EffectiveQuota, ...]:
    """What applies to a user's client-id (where either is given) and to an address (where that is given), by key.

    A user left out is `ANONYMOUS`, a client-id left out the empty one. The whole store is read once for it. Raises what
    the store raises.
    """
    resolver = resolver_of(store.describe(EVERYTHING), static=store.url.startswith("static:"))
    found: tuple[EffectiveQuota, ...] = ()
    if user is not None or client_id is not None:
        found = resolver.for_client(ANONYMOUS if user is None else user, client_id or "")
    return found if ip is None else (*found, resolver.for_ip(ip))

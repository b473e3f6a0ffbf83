"""What `import kafka_quotas` offers to programs, as far as it is more than a name for something else."""

from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas
from kafka_quotas.stores import Store


def effective(
    store: Store, *, user: str | None = None, client_id: str | None = None, ip: str | None = None
) -> tuple[EffectiveQuota, ...]:
    """Return what applies to a user's client-id and to an address, by key.

    The answer leaves out the client or the address where none is given. It reads the whole store once. A client-id
    without a user is that of `ANONYMOUS`, and a user without a client-id has the empty one.

    Raises:
        StoreError: The store can't be read.
    """
    resolver = EffectiveQuotas(store.describe(EVERYTHING), static=store.kind.is_static)
    found: tuple[EffectiveQuota, ...] = ()
    if user is not None or client_id is not None:
        found = resolver.for_client(ANONYMOUS if user is None else user, client_id or "")
    return found if ip is None else (*found, resolver.for_ip(ip))

"""What applies to one client or address, in one call."""

from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas, Entries
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver


def effective_quotas(
    entries: Entries,
    *,
    user: str | None = None,
    client_id: str | None = None,
    ip: str | None = None,
    static: Entries = (),
) -> tuple[EffectiveQuota, ...]:
    """What applies to a client and to an address, as far as they are given, by key."""
    quotas = EffectiveQuotas(entries)
    if static:
        resolvers = {key: QuotaResolver() for key in QUOTA_KEYS.values() if not key.for_ip}
        for update, each in ((QuotaResolver.update, entries), (QuotaResolver.update_static, static)):
            for entity, limits in each:
                for name, limit in limits.items():
                    update(resolvers[QUOTA_KEYS[name]], entity, limit)
        quotas = EffectiveQuotas.over(resolvers)
    found: tuple[EffectiveQuota, ...] = ()
    if user is not None or client_id is not None:
        found = quotas.for_client(ANONYMOUS if user is None else user, client_id or "")
    return found if ip is None else (*found, quotas.for_ip(ip))

"""How requests that create, grow or delete topics are held to `controller_mutation_rate`."""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quota_charges import charges_of


class MutationMode(StrEnum):
    """What becomes of topics over the quota."""

    AUTO = "auto"
    """Refused in versions whose clients know the error, else admitted and waited for, as a broker does."""
    STRICT = "strict"
    """Refused in every version."""
    PERMISSIVE = "permissive"
    """Admitted in every version, and waited for."""


class AutoCreate(StrEnum):
    """What becomes of topics that would be made because a Metadata request names them."""

    COUNT = "count"
    """They count as if they had been asked for, and are waited for."""
    FORBID = "forbid"
    """They are not made."""
    PASS = "pass"  # noqa: S105 - no password
    """They are made and cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRules:
    """The rules for every client that has such a quota; `auto_create: forbid` holds for the others as well."""

    mode: MutationMode = MutationMode.AUTO
    algorithm: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET
    auto_create: AutoCreate = AutoCreate.COUNT

    def is_strict(self, api_key: int, api_version: int) -> bool:
        """Whether topics over the quota are refused in a version."""
        if self.mode is MutationMode.AUTO:
            strict_since = charges_of(api_key).strict_since
            return strict_since is not None and api_version >= strict_since
        return self.mode is MutationMode.STRICT

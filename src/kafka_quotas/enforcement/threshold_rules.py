"""How data over the thresholds of topics is rejected."""

from enum import StrEnum
from typing import Final


class ThresholdError(StrEnum):
    """The error that a producer gets for rejected data."""

    POLICY_VIOLATION = "policy-violation"
    """Clients give up, so the data is dropped."""
    THROTTLING_QUOTA_EXCEEDED = "throttling-quota-exceeded"
    """Clients that know it try again."""

    @property
    def code(self) -> int:
        """The error code of the protocol."""
        return _CODES[self]


_CODES: Final = {ThresholdError.POLICY_VIOLATION: 44, ThresholdError.THROTTLING_QUOTA_EXCEEDED: 89}

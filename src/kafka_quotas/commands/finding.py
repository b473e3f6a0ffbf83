"""Something odd in a store: how bad it is, what it is about, what it is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.entity import Entity


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    ERROR = "error"
    """A stored quota does not do what it says, or stops clients."""
    WARNING = "warning"
    """It may well be a mistake."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `check` names the kind of finding for scripts; `about` is who or what, `entity` where it is one."""

    severity: Severity
    check: str
    about: str
    sentence: str
    remedy: str
    entity: Entity | None = None

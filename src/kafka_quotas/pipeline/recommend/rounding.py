"""Limits as a person would write them."""

import math
from fractions import Fraction

from kafka_quotas.core.quota_key import QuotaKey, ValueType


def neat_limit(key: QuotaKey, value: float) -> float:
    """The smallest figure of two digits that is not below the value, such as 1.3 MB for 1,234,567 bytes.

    Whole and at least 1 where the key takes whole numbers only, at least 0.01 otherwise; never above the key's largest.
    """
    whole = key.value_type is not ValueType.DOUBLE
    least = 1.0 if whole else 0.01
    if value <= least:
        return least
    if value >= key.unlimited:
        return float(key.unlimited)
    step = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    neat = math.ceil(Fraction(value) / step) * step
    return float(min(math.ceil(neat) if whole else neat, Fraction(key.unlimited)))

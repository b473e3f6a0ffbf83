"""Limiters that a stream keeps: their rates now, and their arrays to be saved and restored."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.quota_bucket import UNLIMITED
from kafka_quotas.core.quota_config import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.measure import measure_rates

_SAVED: Final = ("_clocks", "_sums", "_free_ms", "_counts", "_amounts", "_slots", "_pool", "_pool_used")


class LiveLimiters(Limiters):
    """The buckets of one quota type, one limit each, growing in number."""

    def __init__(self, quota_type: QuotaType, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        rule = LimiterRule(
            tokens=quota_type is QuotaType.CONTROLLER_MUTATION,
            bounded=quota_type is QuotaType.REQUEST,
            window=window,
        )
        super().__init__(rule, np.empty((0, 1)))

    def limit(self, bounds: list[float | None]) -> None:
        """Nothing; these are the limits of all buckets from now on, None for none."""
        column = [UNLIMITED if bound is None else bound for bound in bounds]
        self.rebound(np.array(column, dtype=np.float64).reshape(-1, 1))

    def rates(self, rows: NDArray[np.int64], times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Kafka's rate of each of these buckets at its own time; for mutations the tokens that are left."""
        self._require_fit(rows, times_ms)
        window = self.rule.window
        if self.rule.tokens:
            return self._sums[rows]
        rates = np.zeros(rows.size)
        measure_rates(rows, times_ms, self._clocks, self._sums, window.samples, window.window_ms, rates)
        return rates

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that has been recorded."""
        return {name: getattr(self, name) for name in _SAVED}

    def restore(self, arrays: Mapping[str, NDArray[Any]], bounds: list[float | None]) -> None:
        """Hold what `arrays` held, under these limits.

        Raises `ValueError` where that was recorded under another rule or of other buckets.
        """
        self.limit(bounds)
        for name in _SAVED:
            setattr(self, name, arrays[name])
        self._require_fit(np.empty(0, dtype=np.int64))

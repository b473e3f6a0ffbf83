"""Quotas in force: buckets with their limits, one manager per quota type, and their throttle times.

Imports `core.metrics`, `core.model` and `core.resolution`. A *bucket* is one measured rate with its limit, shared by
all clients that the same stored quota assigns to it. `QuotaManager` is Kafka's `ClientQuotaManager`.
"""

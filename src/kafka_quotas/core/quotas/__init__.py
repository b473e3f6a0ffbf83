"""Quotas in force: buckets with their limits, one manager per quota type, and the throttle times they give.

Imports `core.metrics`, `core.model` and `core.resolution`. A *bucket* is one measured rate with its limit; clients
that the same stored quota is split by share it. `QuotaManager` is Kafka's `ClientQuotaManager`.
"""

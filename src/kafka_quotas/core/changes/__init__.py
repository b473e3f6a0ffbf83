"""Changes of stored quotas as values: validation, plans, journal entries, reverts, and whom they affect.

Imports `core.formats`, `core.resolution` and below. Texts of refusals are Kafka's own.
"""

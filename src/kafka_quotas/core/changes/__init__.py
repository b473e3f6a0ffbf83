"""Changes of stored quotas as values: validation, plans, journal entries, reverts, and affected clients.

Imports `core.formats`, `core.resolution` and below. The texts of refusals are Kafka's own.
"""

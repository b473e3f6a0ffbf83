"""Key stores, JAAS entries, SASL mechanisms and tokens, by the names of Kafka's client properties.

Imports `core`. A property that is not supported, or has no valid value, is refused by its name in
a `UsageError`, with an alternative.
"""

"""Key stores, JAAS entries, SASL mechanisms and tokens, by the names of Kafka's client properties.

Imports `core` and `wire.connection`. A property that is not supported is refused by name, with an alternative.
"""

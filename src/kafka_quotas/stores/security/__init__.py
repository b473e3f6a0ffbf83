"""Key stores, JAAS entries, SASL mechanisms and tokens, as Kafka's client properties name them.

Imports `core` and `wire.connection`. What the product can't do is refused by name, with what to use instead.
"""

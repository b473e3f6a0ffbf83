"""Key stores, JAAS entries, SASL mechanisms and tokens, by the names of Kafka's client properties.

`docs/reference/kafka-configs.md` has the properties, `docs/reference/daemon.md` those of listeners, and
`docs/how-to/logins.md` examples. One that is not supported, or has no valid value, is refused by its name in a
`UsageError`, with an alternative. Imports `core`.
"""

"""The Kafka store: quotas through the admin protocol of any broker, logins and TLS included.

Imports `stores.store`, `stores.security` and `wire.client`. A *cluster client* has one *broker client* per broker,
which has one *connection* at a time.
"""

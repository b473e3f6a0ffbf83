"""Stores of quotas: the embedded local store, ZooKeeper, Kafka itself and static files."""

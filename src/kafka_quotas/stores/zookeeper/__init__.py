"""The ZooKeeper store, for clusters up to Kafka 3.9, with Kafka's own znodes and change notifications.

Imports `stores.store` and `core.formats`. `transaction` decides without I/O what to write, and `store` writes it by
compare-and-set.
"""

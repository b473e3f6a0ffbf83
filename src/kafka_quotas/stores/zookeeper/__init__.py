"""The ZooKeeper store, for clusters up to Kafka 3.9: Kafka's own znodes and change notifications.

Imports `stores.store` and `core.formats`. What is written is decided without I/O in `transaction`; `writer` carries it
out by compare-and-set.
"""

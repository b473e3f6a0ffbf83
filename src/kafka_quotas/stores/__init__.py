"""Where quotas are kept: the embedded local store, ZooKeeper, Kafka itself, static files."""

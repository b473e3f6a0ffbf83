"""The daemon: a Kafka-wire-protocol proxy that holds clients to their quotas."""

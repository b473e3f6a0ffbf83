"""The arguments of Kafka's own `kafka-configs`, as far as they concern quotas, to the letter."""

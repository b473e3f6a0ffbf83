"""Set, explain, enforce and prove Apache Kafka client quotas."""

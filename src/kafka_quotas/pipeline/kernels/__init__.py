"""Kafka's quota arithmetic over arrays of events: exact, many clients and many limits at a time, without Spark."""

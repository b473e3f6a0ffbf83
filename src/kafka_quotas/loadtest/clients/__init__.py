"""The clients of a load test: over librdkafka, and raw ones over the wire layer."""

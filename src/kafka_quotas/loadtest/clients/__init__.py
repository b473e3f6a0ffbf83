"""The clients of a load test: over librdkafka, over kafka-python, and raw ones over the wire layer."""

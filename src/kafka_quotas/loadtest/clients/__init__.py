"""The clients of a load test that are not librdkafka's: raw ones over the wire layer, and kafka-python's."""

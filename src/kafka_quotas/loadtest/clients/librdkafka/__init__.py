"""Load clients over librdkafka, through confluent-kafka."""

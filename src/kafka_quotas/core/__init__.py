"""The quota algorithms, exactly as Kafka runs them: pure, without clock, randomness or I/O."""

"""How much clients send and take at a time unless told otherwise: below that a quota makes them wait, or starve.

**Source:** `ProducerConfig.BATCH_SIZE_CONFIG`, `ConsumerConfig.DEFAULT_MAX_PARTITION_FETCH_BYTES` of Kafka 4.0.
"""

from typing import Final

BATCH_BYTES: Final = 16_384
"""A producer's batch.size."""
FETCH_BYTES: Final = 1_048_576
"""A consumer's max.partition.fetch.bytes; about a broker's max.message.bytes too."""

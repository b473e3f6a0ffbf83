"""Which quotas to set, by the recorded usage of clients and an exact replay of limits below that."""

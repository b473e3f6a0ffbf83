"""Which quotas to set: decided from what clients used and from what an exact replay says of limits below that."""

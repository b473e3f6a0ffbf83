"""`kafka-quotas context`: named clusters, and whether they answer."""

"""Events as they arrive, from a topic or a folder, as live usage and throttle state per quota bucket.

Contract: Spark reads, parses and remembers its position. The state is arrays in this process, saved per batch beside
Spark's checkpoint. A batch that Spark runs again after a crash starts from the same state and writes the same rows.
"""

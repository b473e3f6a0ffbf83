"""What a report tells: who uses how much and when, how near to the limits, and what other limits would do."""

"""The content of a report: usage by client and time, distance to the limits, and the effect of other limits."""

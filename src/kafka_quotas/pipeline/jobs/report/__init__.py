"""The content of a report: usage by client and time, limits, and the effect of other limits."""

"""Whether the replay tells what brokers did: its throttle times and rates beside those that were recorded."""

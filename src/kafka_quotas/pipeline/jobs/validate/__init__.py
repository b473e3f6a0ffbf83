"""The comparison of the replay's throttle times and rates with the recorded ones."""

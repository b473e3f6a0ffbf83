"""Load clients over kafka-python, which wait for their throttle time by themselves."""

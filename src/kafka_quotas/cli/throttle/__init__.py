"""`kafka-quotas throttle`: the calculator's commands and their answers."""

"""Kafka's own `kafka-configs`, as far as it concerns quotas, to the letter: options, command, output.

Imports `core` and `stores`. Nothing here prints: the texts are the original's, and the command writes them.
"""

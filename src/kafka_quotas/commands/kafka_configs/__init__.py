"""Kafka's own `kafka-configs`, as far as it concerns quotas, to the letter: its options, and what a command asks for.

Imports `core` alone. Nothing here prints: the texts are the original's, and the command writes them.
"""

"""Java behaviour that Python lacks: text of doubles, order of hash maps, property files.

Imports nothing but `core.errors`. Kafka's figures and texts depend on these to the last digit.
"""

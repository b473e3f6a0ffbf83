"""What Java does and Python doesn't: text of doubles, order of hash maps, property files.

Imports nothing but `core.errors`. Kafka's figures and texts depend on these to the last digit.
"""

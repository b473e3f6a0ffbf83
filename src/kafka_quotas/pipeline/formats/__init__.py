"""One parser per form of input, plain Python over bytes, which both engines run.

Imports `core` alone. A line that can't be read becomes a row of quarantine, never an error and never nothing.
"""

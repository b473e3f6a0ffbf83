"""One parser per input format, plain Python over bytes, for both engines.

Imports `core` alone. A line that can't be read becomes a row of quarantine: it raises no error and is never dropped.
"""

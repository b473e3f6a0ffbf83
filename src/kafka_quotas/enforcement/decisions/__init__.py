"""The messages of the decision API, in JSON and in binary.

Imports `core` alone. Transport is `enforcement.control`'s.
"""

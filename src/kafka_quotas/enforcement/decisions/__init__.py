"""The messages of the decision API, in JSON and in binary.

Imports `enforcement.config`. Transport is `enforcement.control`'s.
"""

"""The decision API's messages: one question about a quota, in JSON and in binary.

Imports `core` alone. Transport is `enforcement.control`'s.
"""

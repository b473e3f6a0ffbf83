"""Requests that we send ourselves, each with its response: the admin client's side of the protocol.

Imports `wire.protocol` and `wire.codec`. A request is a frozen value with a table of its fields and one of its
response.
"""

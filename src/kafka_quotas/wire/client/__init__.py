"""Requests that we send ourselves, each with its response: the admin client's side of the protocol.

Imports `wire.protocol` and `wire.codec`. A request is a frozen value that writes itself and reads its response.
"""

"""The common parts of all APIs: the table of APIs, headers of requests and responses, error codes.

Imports `wire.codec`. The generated table has the place of throttle time and addresses for each API and version.
"""

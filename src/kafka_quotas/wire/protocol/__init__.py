"""The common parts of all APIs: the table of APIs with error codes, headers of requests and responses.

Imports `wire.codec`. The generated table has the place of throttle time and addresses for each API and version.
"""

"""What all APIs have in common: the table of APIs, headers of requests and responses, error codes.

Imports `wire.codec`. The table is generated; it says for each API and version where throttle time and addresses are.
"""

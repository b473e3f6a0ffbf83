"""Sockets: acceptors, connection quotas, TLS, connections to brokers, and the ports they are offered on.

Imports `enforcement.session` and `enforcement.filters`. The only part of the daemon's data path that does I/O.
"""

"""Servers for a demo or a test, always stopped afterwards: brokers, the daemon, their users.

Imports `stores` and `enforcement`. These are no verbs.
"""

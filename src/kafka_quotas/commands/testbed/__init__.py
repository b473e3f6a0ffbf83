"""Servers started for a demo or a test and always ended again: brokers, the daemon, their users.

Imports `stores` and `enforcement`. These are no verbs.
"""

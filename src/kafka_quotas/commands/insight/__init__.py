"""Why things are as they are: doctor, top, tree, why, and where usage is read from.

Imports `commands.quotas`, `stores` and the daemon's client.
"""

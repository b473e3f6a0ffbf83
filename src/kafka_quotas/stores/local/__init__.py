"""The local store: quotas in one SQLite file, the default where no cluster is named.

Imports `stores.store`.
"""

"""Quotas as files: validate, diff, export, apply once or again and again.

Imports `commands.quotas`, `core.quota_files` and `stores`. Each raises a `StoreError` where a store can't be read.
"""

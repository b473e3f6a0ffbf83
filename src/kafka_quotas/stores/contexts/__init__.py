"""Contexts: named clusters in `contexts.toml`, each with its store, its login and references to its secrets.

Imports `stores.url` and `stores.settings`. A context that does not exist, a text that can't be understood and a file
that can't be read, written or edited (but by hand) are a `UsageError`.
"""

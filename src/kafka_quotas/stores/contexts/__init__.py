"""Contexts: named clusters in `contexts.toml`, each with its store, its login and references to its secrets.

Imports `stores.url` and `stores.settings`.
"""

"""Contexts: named clusters in `contexts.toml`, each with its store, its login and its secrets.

Imports `stores.url` and `stores.settings`. Secrets are referred to and never held.
"""

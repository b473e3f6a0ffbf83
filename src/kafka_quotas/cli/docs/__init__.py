"""Manual pages, completion files and the README's picture, made from the command tree.

Imports `cli.main`; the product imports nothing from here.
"""

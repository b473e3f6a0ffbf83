"""Completion of command lines: scripts for shells, live values, and the fast path past Typer.

Imports `cli.output` and `commands`.
"""

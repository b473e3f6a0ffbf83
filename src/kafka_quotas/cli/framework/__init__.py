"""What commands are built on: Typer's groups, options in order, listings, and the store that is meant.

Imports `cli.output`. Knows no command.
"""

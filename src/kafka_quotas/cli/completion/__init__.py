"""Completion of command lines: scripts for shells, live values, and the fast path past Typer.

Imports `cli.output`, `cli.framework` and `commands`. The start of the program imports this module at every run.
"""

COMPLETE_VARIABLE = "_KAFKA_QUOTAS_COMPLETE"
"""The variable by which a shell's script asks for completions, in the spelling that Typer derives."""

"""Option types that several commands share, each parsed once into a value.

Imports `cli.output`, `cli.framework` and `commands`.
"""

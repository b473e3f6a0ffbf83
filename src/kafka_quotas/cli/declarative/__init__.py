"""`export`, `validate`, `diff` and `apply`: one module per command."""

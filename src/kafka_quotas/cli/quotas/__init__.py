"""`alter`, `describe`, `revert`, `migrate` and `watch`: one module per command."""

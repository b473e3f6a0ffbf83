"""`doctor`, `top`, `tree` and `why`: one module per command."""

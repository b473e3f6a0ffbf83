"""`demo` and `pipeline demo`: one module per command. They run other commands, so they are above the table of them."""

"""Manual pages, the reference of all commands and completion files, made from the command tree."""

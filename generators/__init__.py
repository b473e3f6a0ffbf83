"""Programs that write source files from the protocol's published message definitions."""

"""Programs that write source files from the protocol's message definitions, and pages from what scenarios measure."""

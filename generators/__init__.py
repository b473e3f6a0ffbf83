"""Programs that write files of this repository: sources from definitions, pages from outputs and measurements."""

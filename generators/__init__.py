"""Programs that write files of this repository: sources from the message definitions, pages from what commands print or runs measure."""

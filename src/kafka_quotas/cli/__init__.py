"""The command line: it parses text into values once, calls a verb and renders its result."""

"""Load clients of our own over `wire`: many connections in one event loop, prebuilt batches."""

"""A load test as table, live view, chart and page."""

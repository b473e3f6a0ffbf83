"""One module per verb: plain functions that take values, return a frozen result and print nothing."""

"""One module per verb: plain functions, values in, a frozen result out; nothing is printed here."""

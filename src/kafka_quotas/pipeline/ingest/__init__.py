"""Files of many forms into the tables events, metrics, client_throttle and quarantine.

Contract: one parser per form, plain Python over bytes, which both engines run; a line that can't be read becomes a row
of quarantine, never an error and never nothing. What was read is remembered: reading it again changes nothing.
"""

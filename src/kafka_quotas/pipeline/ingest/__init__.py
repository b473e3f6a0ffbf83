"""Files of many formats into the tables events, metrics, client_throttle and quarantine.

Contract: a line that can't be read becomes a row of quarantine. A manifest records the files that were read, and a
second ingest of them changes nothing.
"""

"""Files of many formats into the tables events, metrics, client_throttle and quarantine.

Contract: there is one parser per format, plain Python over bytes, for both engines. A line that can't be read becomes a
row of quarantine: it raises no error and is never dropped. A manifest records the files that were read, and a second
ingest of them changes nothing.
"""

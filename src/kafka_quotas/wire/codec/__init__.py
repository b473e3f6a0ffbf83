"""Fields and frames: skipping, reading and writing bytes in the classic and the compact encoding.

Imports nothing of `wire`. *Compact* is the encoding of flexible versions (KIP-482). Offsets count from the frame's
start.
"""

"""Where jobs run: on this machine or on Spark, which of the two and why, and how far they are.

Imports `pipeline.tables`. Sessions and paths are arguments.
"""

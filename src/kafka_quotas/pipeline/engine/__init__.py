"""Where jobs run: on this machine or on Spark, the choice between them, and their progress.

Imports `pipeline.tables`. Sessions and paths are arguments.
"""
